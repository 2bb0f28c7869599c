"""Pull requests: batches, waiting, limits, and every status (ADR-13)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.jetstream.behaviour.api import MS, SECOND, Api
from tests.jetstream.behaviour.puller import Puller, deliveries_of, pending_of, sequence_of


async def consumer(api: Api, messages: int = 0, **config: Any) -> Puller:
    """Create stream S with `messages` messages of 10 bytes, and consumer C; return a puller."""
    await api.create_stream("S", subjects=["s", "s.>"])
    for number in range(messages):
        await api.publish("s", b"%10d" % (number + 1))
    await api.create_consumer("S", "C", **config)
    return await Puller.of(api.nc, "S", "C")


class TestRequests:
    async def test_empty_is_one(self, api: Api) -> None:
        puller = await consumer(api, 3)
        await puller.ask()
        assert await puller.sequences(1) == [1]
        await puller.ask(b"")
        assert await puller.sequences(1) == [2]
        await puller.nothing()

    async def test_a_number(self, api: Api) -> None:
        puller = await consumer(api, 5)
        await puller.ask(b"3")
        assert await puller.sequences(3) == [1, 2, 3]
        await puller.nothing()

    async def test_waits_for_what_comes(self, api: Api) -> None:
        puller = await consumer(api, 1)
        await puller.ask(b"3")
        assert await puller.sequences(1) == [1]
        await api.publish("s", b"late")
        assert await puller.take(1) == [(2, b"late")]
        await api.publish("s.x", b"later")
        message = await puller.message()
        assert (message.subject, message.data) == ("s.x", b"later")

    async def test_batch(self, api: Api) -> None:
        puller = await consumer(api, 10)
        await puller.ask(batch=4)
        await puller.ask(batch=4)
        assert await puller.sequences(8) == [1, 2, 3, 4, 5, 6, 7, 8]
        await puller.nothing()

    async def test_reply_subject(self, api: Api) -> None:
        """The reply subject tells deliveries, sequences, time and pending messages (ADR-15)."""
        puller = await consumer(api, 3)
        await api.ok("STREAM.MSG.DELETE.S", {"seq": 2})
        await puller.ask(batch=2)
        first, last = await puller.messages(2)
        tokens = last.reply.split(".")
        assert tokens[:7] == ["$JS", "ACK", "S", "C", "1", "3", "2"]
        assert len(tokens) == 9
        assert len(tokens[7]) == 19
        assert (pending_of(first), pending_of(last)) == (1, 0)

    async def test_unheard_of(self, api: Api) -> None:
        """A broken JSON object is refused; other bodies that are no number ask for one message."""
        puller = await consumer(api, 3)
        for body in (b"{", b'{"batch":"2"}', b'{"expires":"1s"}', b'{"batch":1}}'):
            await puller.ask(body)
            assert (await puller.line()).startswith("400 Bad Request")
        for sequence, body in enumerate((b"x", b"[]", b"2x"), 1):
            await puller.ask(body)
            assert await puller.sequences(1) == [sequence]
        await puller.nothing()

    async def test_absurd_numbers(self, api: Api) -> None:
        """A batch below 1 counts as 1."""
        puller = await consumer(api, 4)
        for sequence, body in enumerate((b"0", b"-5", b'{"batch":0}', b'{"batch":-1}'), 1):
            await puller.ask(body)
            assert await puller.sequences(1) == [sequence]
        await puller.nothing()


class TestNoWait:
    async def test_nothing_there(self, api: Api) -> None:
        puller = await consumer(api)
        await puller.ask(batch=5, no_wait=True)
        assert await puller.line() == "404 No Messages"

    async def test_as_much_as_there_is(self, api: Api) -> None:
        """The batch ends with a status, 404 or 408, if there are fewer messages."""
        puller = await consumer(api, 2)
        await puller.ask(batch=5, no_wait=True)
        assert await puller.sequences(2) == [1, 2]
        status = await puller.status()
        assert status.code in ("404", "408")

    async def test_all_of_it(self, api: Api) -> None:
        puller = await consumer(api, 5)
        await puller.ask(batch=5, no_wait=True)
        assert await puller.sequences(5) == [1, 2, 3, 4, 5]
        await puller.nothing()

    async def test_at_the_limit_of_acks(self, api: Api) -> None:
        """A no_wait request does not wait for acks: later messages are for the next request."""
        puller = await consumer(api, 5, max_ack_pending=2)
        await puller.ask(batch=4, no_wait=True, expires=5 * SECOND, idle_heartbeat=100 * MS)
        messages = await puller.messages(2)
        assert await puller.line() == "404 No Messages"
        for message in messages:
            await api.nc.request(message.reply, b"+ACK", 5)
        await puller.nothing()

    async def test_while_another_waits(self, api: Api) -> None:
        puller = await consumer(api)
        other = await Puller.of(api.nc, "S", "C")
        await puller.ask(batch=1)
        await other.ask(batch=1, no_wait=True)
        assert await other.line() == "404 No Messages"
        await api.publish("s")
        assert await puller.sequences(1) == [1]


class TestExpiry:
    async def test_nothing_came(self, api: Api) -> None:
        puller = await consumer(api)
        await puller.ask(batch=7, expires=100 * MS)
        status = await puller.status()
        assert status.line == "408 Request Timeout"
        assert status.headers == {"Nats-Pending-Messages": "7", "Nats-Pending-Bytes": "0"}

    async def test_not_enough_came(self, api: Api) -> None:
        puller = await consumer(api, 2)
        await puller.ask(batch=7, expires=150 * MS, max_bytes=10_000)
        assert await puller.sequences(2) == [1, 2]
        status = await puller.status()
        assert status.line == "408 Request Timeout"
        assert status.headers["Nats-Pending-Messages"] == "5"
        assert 0 < int(status.headers["Nats-Pending-Bytes"]) < 10_000

    async def test_an_expired_one_takes_nothing(self, api: Api) -> None:
        puller = await consumer(api)
        await puller.ask(batch=1, expires=50 * MS)
        assert await puller.line() == "408 Request Timeout"
        await api.publish("s")
        await puller.nothing()
        info = await api.consumer_info("S", "C")
        assert (info["num_waiting"], info["num_pending"]) == (0, 1)

    async def test_out_of_order(self, api: Api) -> None:
        """Each request ends at its own time."""
        puller = await consumer(api)
        later = await Puller.of(api.nc, "S", "C")
        await later.ask(batch=1, expires=5 * SECOND)
        await puller.ask(batch=1, expires=50 * MS)
        assert await puller.line() == "408 Request Timeout"
        await api.publish("s")
        assert await later.sequences(1) == [1]

    async def test_with_no_wait(self, api: Api) -> None:
        """With no_wait and expires a request takes the present messages, or waits if none."""
        puller = await consumer(api)
        await puller.ask(batch=1, expires=100 * MS, no_wait=True)
        assert await puller.line() == "408 Request Timeout"
        await puller.ask(batch=2, expires=10 * SECOND, no_wait=True)
        await api.publish("s", b"x")
        assert await puller.sequences(1) == [1]


class TestBytes:
    async def test_ends_the_batch(self, api: Api) -> None:
        """Subject, reply and headers count like the data."""
        puller = await consumer(api, 10)
        await puller.ask(batch=10, max_bytes=160, no_wait=True)
        got = [await puller.next()]
        while not (got[-1].headers or {}).get("Status"):
            got.append(await puller.next())
        assert (got[-1].headers or {})["Status"] == "409"
        assert (got[-1].headers or {})["Description"] == "Message Size Exceeds MaxBytes"
        assert 1 <= len(got) - 1 <= 3

    async def test_even_the_first_is_too_large(self, api: Api) -> None:
        puller = await consumer(api, 1)
        await puller.ask(batch=1, max_bytes=20)
        assert await puller.line() == "409 Message Size Exceeds MaxBytes"
        await puller.ask(batch=1, max_bytes=1000)
        assert await puller.sequences(1) == [1]


class TestHeartbeats:
    async def test_while_nothing_comes(self, api: Api) -> None:
        puller = await consumer(api)
        await puller.ask(batch=1, expires=30 * SECOND, idle_heartbeat=100 * MS)
        for _ in range(2):
            assert await puller.line() == "100 Idle Heartbeat"
        await api.publish("s", b"x")
        while (await puller.next()).data != b"x":
            pass
        await puller.nothing()

    async def test_too_rare(self, api: Api) -> None:
        puller = await consumer(api)
        await puller.ask(batch=1, expires=1 * SECOND, idle_heartbeat=600 * MS)
        assert await puller.line() == "400 Bad Request - heartbeat value too large"


class TestLimits:
    async def test_batch(self, api: Api) -> None:
        puller = await consumer(api, 5, max_batch=3)
        await puller.ask(batch=4)
        assert await puller.line() == "409 Exceeded MaxRequestBatch of 3"
        await puller.ask(batch=3)
        assert await puller.sequences(3) == [1, 2, 3]

    async def test_expires(self, api: Api) -> None:
        puller = await consumer(api, 1, max_expires=1500 * MS)
        await puller.ask(batch=1, expires=2 * SECOND)
        assert await puller.line() == "409 Exceeded MaxRequestExpires of 1.5s"
        await puller.ask(batch=1, expires=1 * SECOND)
        assert await puller.sequences(1) == [1]

    async def test_bytes(self, api: Api) -> None:
        puller = await consumer(api, 1, max_bytes=1024)
        await puller.ask(batch=1, max_bytes=1025)
        assert await puller.line() == "409 Exceeded MaxRequestMaxBytes of 1024"
        await puller.ask(batch=1, max_bytes=1024)
        assert await puller.sequences(1) == [1]

    async def test_waiting(self, api: Api) -> None:
        """Requests beyond max_waiting are refused; the waiting ones go on."""
        puller = await consumer(api, max_waiting=2)
        others = [await Puller.of(api.nc, "S", "C") for _ in range(2)]
        for other in others:
            await other.ask(batch=1)
        await puller.ask(batch=1)
        assert await puller.line() == "409 Exceeded MaxWaiting"
        assert (await api.consumer_info("S", "C"))["num_waiting"] == 2
        await api.fill("s", 2)
        assert await others[0].sequences(1) == [1]
        assert await others[1].sequences(1) == [2]

    async def test_room_of_those_who_left(self, api: Api) -> None:
        """A request without a listener makes room."""
        puller = await consumer(api, max_waiting=1)
        gone = await Puller.of(api.nc, "S", "C")
        await gone.ask(batch=1)
        await api.nc.flush()
        await gone.replies.unsubscribe()
        await api.nc.flush()
        await api.publish("s", b"x")
        await puller.ask(batch=1)
        assert await puller.take(1) == [(1, b"x")]


class TestFairness:
    async def test_one_after_the_other(self, api: Api) -> None:
        """Requests are served in turn, one message each."""
        await consumer(api)
        pullers = [await Puller.of(api.nc, "S", "C") for _ in range(3)]
        for puller in pullers:
            await puller.ask(batch=2)
        await api.nc.flush()
        await api.fill("s", 6)
        assert [await puller.sequences(2) for puller in pullers] == [[1, 4], [2, 5], [3, 6]]

    async def test_gone_listener_loses_nothing(self, api: Api) -> None:
        """The messages of a request without a listener go to the next request."""
        puller = await consumer(api)
        gone = await Puller.of(api.nc, "S", "C")
        await gone.ask(batch=10)
        await api.nc.flush()
        await gone.replies.unsubscribe()
        await puller.ask(batch=3)
        await api.fill("s", 3)
        assert await puller.sequences(3) == [1, 2, 3]

    async def test_many_readers_share(self, api: Api) -> None:
        await consumer(api, 100)
        pullers = [await Puller.of(api.nc, "S", "C") for _ in range(5)]
        for puller in pullers:
            await puller.ask(batch=20)
        got = [await puller.sequences(20) for puller in pullers]
        assert sorted(sequence for part in got for sequence in part) == list(range(1, 101))


class TestEnd:
    async def test_consumer_deleted(self, api: Api) -> None:
        puller = await consumer(api)
        await puller.ask(batch=5, expires=30 * SECOND)
        await api.nc.flush()
        await api.ok("CONSUMER.DELETE.S.C")
        assert await puller.line() == "409 Consumer Deleted"
        await puller.ask(batch=1)
        assert (await puller.status()).code == "503"

    async def test_stream_deleted(self, api: Api) -> None:
        puller = await consumer(api)
        await puller.ask(batch=5, expires=30 * SECOND)
        await api.nc.flush()
        await api.ok("STREAM.DELETE.S")
        assert await puller.line() == "409 Consumer Deleted"

    async def test_push_consumer(self, api: Api) -> None:
        await api.create_stream("S")
        await api.create_consumer("S", "C", deliver_subject="d")
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(batch=1)
        assert await puller.line() == "409 Consumer is push based"

    async def test_no_such_consumer(self, api: Api) -> None:
        await api.create_stream("S")
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(batch=1)
        assert (await puller.status()).code == "503"


class TestPending:
    async def test_counts_down(self, api: Api) -> None:
        puller = await consumer(api, 5)
        assert (await api.consumer_info("S", "C"))["num_pending"] == 5
        await puller.ask(batch=2)
        assert [pending_of(message) for message in await puller.messages(2)] == [4, 3]
        info = await api.consumer_info("S", "C")
        assert (info["num_pending"], info["num_ack_pending"]) == (3, 2)
        await api.publish("s")
        assert (await api.consumer_info("S", "C"))["num_pending"] == 4

    async def test_of_a_filter(self, api: Api) -> None:
        await api.create_stream("S", subjects=["s.*"])
        await api.create_consumer("S", "C", filter_subject="s.a")
        for number in range(10):
            await api.publish("s.a" if number % 2 else "s.b")
        assert (await api.consumer_info("S", "C"))["num_pending"] == 5
        await api.ok("STREAM.MSG.DELETE.S", {"seq": 2})
        await api.ok("STREAM.MSG.DELETE.S", {"seq": 3})
        assert (await api.consumer_info("S", "C"))["num_pending"] == 4
        await api.ok("STREAM.PURGE.S", {"filter": "s.b"})
        assert (await api.consumer_info("S", "C"))["num_pending"] == 4
        await api.ok("STREAM.PURGE.S", {"filter": "s.a", "keep": 1})
        assert (await api.consumer_info("S", "C"))["num_pending"] == 1

    async def test_when_what_was_delivered_goes(self, api: Api) -> None:
        puller = await consumer(api, 5)
        await puller.ask(batch=2)
        await puller.messages(2)
        await api.ok("STREAM.PURGE.S", {"keep": 1})
        info = await api.consumer_info("S", "C")
        assert (info["num_pending"], info["num_ack_pending"]) == (1, 0)

    async def test_limits_of_the_stream(self, api: Api) -> None:
        await api.create_stream("S", max_msgs=3)
        await api.create_consumer("S", "C")
        await api.fill("s", 10)
        assert (await api.consumer_info("S", "C"))["num_pending"] == 3
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(batch=10, no_wait=True)
        assert await puller.sequences(3) == [8, 9, 10]

    async def test_per_subject_limit(self, api: Api) -> None:
        await api.create_stream("S", subjects=["s.*"], max_msgs_per_subject=1)
        await api.create_consumer("S", "C", filter_subjects=["s.a", "s.b"])
        for number in range(10):
            await api.publish(f"s.{'abc'[number % 3]}")
        assert (await api.consumer_info("S", "C"))["num_pending"] == 2


async def test_with_a_client_library(api: Api) -> None:
    """nats-py's fetch and ack work."""
    await api.create_stream("S")
    await api.fill("s", 10, b"x")
    js = api.nc.jetstream()
    subscription = await js.pull_subscribe("s", durable="D")
    for _ in range(2):
        messages = await subscription.fetch(5, timeout=5)
        await asyncio.gather(*(message.ack_sync() for message in messages))
    info = await subscription.consumer_info()
    assert (info.num_pending, info.num_ack_pending) == (0, 0)
    with pytest.raises(asyncio.TimeoutError):
        await subscription.fetch(1, timeout=0.1)


async def test_waiting_is_counted(api: Api) -> None:
    puller = await consumer(api)
    for count in range(1, 4):
        await puller.ask(batch=2, expires=60 * SECOND)
        await api.until_consumer("S", "C", num_waiting=count)
    await api.fill("s", 6)
    await puller.sequences(6)
    assert (await api.consumer_info("S", "C"))["num_waiting"] == 0


async def test_redelivered_before_new(api: Api) -> None:
    puller = await consumer(api, 3, ack_wait=100 * MS)
    await puller.ask(batch=2)
    await puller.messages(2)
    await asyncio.sleep(0.15)  # the time in which the messages are delivered
    await puller.ask(batch=3)
    got = await puller.messages(3)
    assert [sequence_of(message) for message in got] == [1, 2, 3]
    assert [deliveries_of(message) for message in got] == [2, 2, 1]
