"""Pull requests and their deliveries in the consumer engine (ADR-13)."""

from __future__ import annotations

import pytest

from natsd.jetstream.consumer.delivery import CONSUMER_DELETED, SERVER_SHUTDOWN
from natsd.jetstream.consumer.settings import EngineSettings, PriorityPolicyCode
from natsd.store.consumer.consumer_state import AckPolicyCode
from natsd.store.store import Limits
from tests.jetstream.clock import SECOND_NS, START_NS
from tests.jetstream.consumer.bench import Bench


async def test_each_message_once_in_order(bench: Bench) -> None:
    engine = bench.engine()
    bench.listen("inbox")
    bench.append("a", "b", "c")
    bench.pull(b"2")
    assert await bench.take_messages() == [(1, 1, 1, 2), (1, 2, 2, 1)]
    bench.pull()
    first = await bench.take()
    assert (first[0].subject, first[0].data, first[0].headers) == ("c", b"x", b"")
    assert first[0].reply == f"$JS.ACK.S.C.1.3.3.{START_NS}.0"
    assert (engine.num_pending, engine.num_ack_pending, engine.num_waiting) == (0, 3, 0)
    assert (engine.delivered().consumer, engine.delivered().stream) == (3, 3)


async def test_a_request_waits_for_what_comes(bench: Bench) -> None:
    engine = bench.engine()
    bench.listen("inbox")
    bench.pull(b'{"batch":3,"expires":5000000000}')
    assert await bench.take() == []
    assert engine.num_waiting == 1
    bench.append("a")
    assert await bench.take_messages() == [(1, 1, 1, 0)]
    bench.append("a", "a", "a")
    assert await bench.take_messages() == [(1, 2, 2, 2), (1, 3, 3, 1)]
    assert engine.num_waiting == 0


async def test_requests_take_turns(bench: Bench) -> None:
    bench.engine()
    bench.listen("one")
    bench.listen("two")
    bench.pull(b"2", reply="one")
    bench.pull(b"3", reply="two")
    for name in ("one", "two"):
        bench.sublist.remove(bench.listen(name))
    bench.append(*"abcde")
    got = await bench.take()
    turns = [delivery.subject for delivery in got]
    assert turns == list("abcde")
    assert [delivery.numbers[1] for delivery in got] == [1, 2, 3, 4, 5]


async def test_nobody_listens_to_the_inbox(bench: Bench) -> None:
    """The request ends without a status, and the message goes to the next request."""
    engine = bench.engine()
    bench.pull(b"1", reply="gone")
    bench.listen("inbox")
    bench.append("a")
    await bench.settle()
    assert engine.num_waiting == 0
    assert engine.num_pending == 1
    bench.pull()
    assert await bench.take_messages() == [(1, 1, 1, 0)]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"no_wait":true}', "404 No Messages"),
        (b'{"no_wait":true,"batch":10}', "404 No Messages"),
        (b"{", "400 Bad Request - unexpected end of JSON input"),
        (b'{"idle_heartbeat":5,"expires":9}', "400 Bad Request - heartbeat value too large"),
        (b'{"min_pending":1}', "400 Bad Request - Not a Overflow Priority consumer"),
        (b'{"min_ack_pending":1}', "400 Bad Request - Not a Overflow Priority consumer"),
        (b'{"id":"x"}', "400 Bad Request - Not a Pinned Client Priority consumer"),
        (b'{"priority":10}', "400 Bad Request - Priority must be between 0 and 9"),
        (b"11", "409 Exceeded MaxRequestBatch of 10"),
        (b'{"expires":60000000001}', "409 Exceeded MaxRequestExpires of 1m0s"),
        (b'{"max_bytes":1001}', "409 Exceeded MaxRequestMaxBytes of 1000"),
    ],
)
async def test_refused(bench: Bench, body: bytes, status: str) -> None:
    engine = bench.engine(
        EngineSettings(
            stream="S",
            max_request_batch=10,
            max_request_expires_ns=60 * SECOND_NS,
            max_request_bytes=1000,
        )
    )
    bench.listen("inbox")
    bench.pull(body)
    assert await bench.take_statuses() == [status]
    assert engine.num_waiting == 0


@pytest.mark.parametrize(
    ("level", "status"),
    [
        (b"1", "404 No Messages"),
        (b"-1", "404 No Messages"),
        (b"99", "412 Required Api Level"),
        (b"x", "412 Required Api Level"),
    ],
)
async def test_required_api_level(bench: Bench, level: bytes, status: str) -> None:
    bench.engine()
    bench.listen("inbox")
    headers = b"NATS/1.0\r\nNats-Required-Api-Level: %b\r\n\r\n" % level
    bench.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"no_wait":true}', "inbox", headers)
    assert await bench.take_statuses() == [status]


async def test_a_push_consumer_takes_no_requests(bench: Bench) -> None:
    bench.engine(EngineSettings(stream="S", deliver_subject="deliver"))
    bench.listen("inbox")
    bench.pull()
    assert await bench.take_statuses() == ["409 Consumer is push based"]


async def test_no_wait_takes_what_there_is(bench: Bench) -> None:
    bench.engine()
    bench.listen("inbox")
    bench.append("a", "b")
    bench.pull(b'{"no_wait":true,"batch":5}')
    got = await bench.take()
    assert [delivery.subject for delivery in got] == ["a", "b", "inbox"]
    assert got[2].status == "404 No Messages"


async def test_no_wait_with_expires_waits_for_the_first(bench: Bench) -> None:
    """The request waits while there is no message, and ends after the first ones."""
    engine = bench.engine()
    bench.listen("inbox")
    bench.pull(b'{"no_wait":true,"batch":5,"expires":3000000000}')
    assert await bench.take() == []
    bench.append("a", "b")
    assert [delivery.subject for delivery in await bench.take()] == ["a", "b", "inbox"]
    assert engine.num_waiting == 0
    bench.pull(b'{"no_wait":true,"batch":5,"expires":3000000000}')
    await bench.advance(4)
    assert await bench.take_statuses() == ["408 Request Timeout"]


async def test_no_wait_behind_requests_that_want_more(bench: Bench) -> None:
    bench.engine(EngineSettings(stream="S", max_ack_pending=1))
    bench.listen("inbox")
    bench.append("a", "b")
    bench.pull(b'{"batch":5,"expires":3000000000}')
    assert len(await bench.take()) == 1
    bench.pull(b'{"no_wait":true}')
    assert await bench.take_statuses() == ["408 Requests Pending"]


async def test_no_wait_is_not_ended_by_max_ack_pending(bench: Bench) -> None:
    engine = bench.engine(EngineSettings(stream="S", max_ack_pending=1))
    bench.listen("inbox")
    bench.append("a", "b")
    bench.pull(b'{"batch":2,"no_wait":true}')
    got = await bench.take()
    assert [delivery.subject for delivery in got] == ["a"]
    assert engine.num_waiting == 1
    bench.ack(got[0])
    assert [delivery.subject for delivery in await bench.take()] == ["b"]


async def test_expiry_says_what_is_left(bench: Bench) -> None:
    engine = bench.engine()
    bench.listen("inbox")
    bench.append("a")
    bench.pull(b'{"batch":3,"expires":2000000000,"max_bytes":1000}')
    size = sum(len(text) for text in ("a", (await bench.take())[0].reply or "")) + 1
    await bench.advance(1.9)
    assert await bench.take() == []
    await bench.advance(0.2)
    assert (await bench.take())[0].headers == (
        b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 2\r\n"
        b"Nats-Pending-Bytes: %d\r\n\r\n" % (1000 - size)
    )
    assert engine.num_waiting == 0


async def test_a_message_larger_than_max_bytes_ends_the_request(bench: Bench) -> None:
    engine = bench.engine()
    bench.listen("inbox")
    bench.append("a", data=b"x" * 500)
    bench.pull(b'{"batch":3,"max_bytes":400}')
    got = await bench.take()
    assert got[0].headers == (
        b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: 3\r\n"
        b"Nats-Pending-Bytes: 400\r\n\r\n"
    )
    assert (engine.num_waiting, engine.num_pending) == (0, 1)


async def test_a_batch_that_leaves_bytes_says_so(bench: Bench) -> None:
    bench.engine()
    bench.listen("inbox")
    bench.append("a")
    bench.pull(b'{"batch":1,"max_bytes":1000}')
    message, status = await bench.take()
    size = 1 + len(message.reply or "") + 1
    assert status.headers == (
        b"NATS/1.0 409 Batch Completed\r\nNats-Pending-Messages: 0\r\n"
        b"Nats-Pending-Bytes: %d\r\n\r\n" % (1000 - size)
    )


async def test_bytes_that_are_used_up_end_the_request(bench: Bench) -> None:
    engine = bench.engine()
    bench.listen("inbox")
    bench.append("a", "a")
    size = len(f"a$JS.ACK.S.C.1.1.1.{START_NS}.1x")
    bench.pull(b'{"batch":5,"max_bytes":%d}' % size)
    assert len(await bench.take()) == 1
    assert engine.num_waiting == 0


async def test_heartbeats_while_a_request_waits(bench: Bench) -> None:
    bench.engine()
    bench.listen("inbox")
    bench.append("a")
    bench.pull(b'{"batch":5,"expires":10000000000,"idle_heartbeat":1000000000}')
    assert len(await bench.take()) == 1
    await bench.advance(1.1)
    assert (await bench.take())[0].headers == (
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n"
    )
    bench.append("a")
    assert len(await bench.take()) == 1
    await bench.advance(0.9)
    assert await bench.take() == []
    await bench.advance(0.2)
    assert await bench.take_statuses() == ["100 Idle Heartbeat"]


async def test_heartbeats_are_a_millisecond_apart_at_least(bench: Bench) -> None:
    bench.engine()
    bench.listen("inbox")
    bench.pull(b'{"batch":5,"expires":10000000000,"idle_heartbeat":1}')
    await bench.advance(0.0009)
    bench.append("a")
    assert [message.headers for message in await bench.take()] == [b""]
    await bench.advance(0.0009)
    assert await bench.take() == []
    await bench.advance(0.0002)
    assert await bench.take_statuses() == ["100 Idle Heartbeat"]


async def test_max_waiting(bench: Bench) -> None:
    """Requests without a listener make room; the engine checks once a second."""
    engine = bench.engine(EngineSettings(stream="S", max_waiting=2))
    bench.listen("inbox")
    await bench.advance(10)
    bench.pull(reply="gone")
    bench.pull()
    bench.pull()
    assert await bench.take_statuses() == []
    assert engine.num_waiting == 2
    bench.pull()
    assert await bench.take_statuses() == ["409 Exceeded MaxWaiting"]
    bench.pull(b'{"expires":10000000000,"idle_heartbeat":1000000000}')
    assert await bench.take_statuses() == []
    assert engine.num_waiting == 2


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (CONSUMER_DELETED, b"NATS/1.0 409 Consumer Deleted\r\n\r\n"),
        (
            SERVER_SHUTDOWN,
            b"NATS/1.0 409 Server Shutdown\r\nNats-Pending-Messages: 5\r\n"
            b"Nats-Pending-Bytes: 0\r\n\r\n",
        ),
        (None, None),
    ],
)
async def test_the_end(bench: Bench, status: str | None, headers: bytes | None) -> None:
    engine = bench.engine()
    bench.listen("inbox")
    bench.pull(b"5")
    engine.stop(status)
    bench.append("a")
    assert [got.headers for got in await bench.take()] == ([headers] if headers else [])
    assert engine.is_stopped
    assert bench.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"", "inbox") == 0


async def test_headers_only(bench: Bench) -> None:
    bench.engine(EngineSettings(stream="S", headers_only=True))
    bench.listen("inbox")
    bench.append("a", data=b"hello")
    bench.append("a", data=b"hello!", headers=b"NATS/1.0\r\nA: b\r\n\r\n")
    bench.pull(b"2")
    got = await bench.take()
    assert [(delivery.headers, delivery.data) for delivery in got] == [
        (b"NATS/1.0\r\nNats-Msg-Size: 5\r\n\r\n", b""),
        (b"NATS/1.0\r\nA: b\r\nNats-Msg-Size: 6\r\n\r\n", b""),
    ]


@pytest.mark.parametrize("headers_only", [False, True])
async def test_messages_of_a_read_replica_say_how_old_they_may_be(
    bench: Bench, headers_only: bool
) -> None:
    asked = []

    def age() -> bytes:
        asked.append(b"Natsd-Staleness: 0.%03ds\r\n" % len(asked))
        return asked[-1]

    engine = bench.engine(EngineSettings(stream="S", headers_only=headers_only))
    engine.mark_with(age)
    bench.listen("inbox")
    bench.append("a", data=b"hello")
    bench.append("a", data=b"hello!", headers=b"NATS/1.0\r\nA: b\r\n\r\n")
    bench.pull(b"3")
    got = await bench.take()
    own = [(b"Nats-Msg-Size: %d\r\n" % size if headers_only else b"") for size in (5, 6)]
    assert [each.headers for each in got] == [
        b"NATS/1.0\r\n" + own[0] + asked[0] + b"\r\n",
        b"NATS/1.0\r\nA: b\r\n" + own[1] + asked[0] + b"\r\n",
    ]
    assert [each.data for each in got] == ([b"", b""] if headers_only else [b"hello", b"hello!"])
    assert len(asked) == 1  # for all messages of a turn
    bench.append("a")
    (later,) = await bench.take()
    assert len(asked) == 2
    assert asked[1] in later.headers


async def test_a_pinned_client_gets_the_age_and_its_pin(bench: Bench) -> None:
    engine = bench.engine(
        EngineSettings(
            stream="S",
            priority_policy=PriorityPolicyCode.PINNED_CLIENT,
            priority_groups=("g",),
            priority_timeout_ns=SECOND_NS,
        )
    )
    engine.mark_with(lambda: b"Natsd-Staleness: 0.001s\r\n")
    bench.listen("inbox")
    bench.append("a", data=b"hello", headers=b"NATS/1.0\r\nA: b\r\n\r\n")
    bench.pull(b'{"batch":1,"group":"g"}')
    (got,) = await bench.take()
    begin, pin = got.headers.split(b"Nats-Pin-Id: ")
    assert begin == b"NATS/1.0\r\nA: b\r\nNatsd-Staleness: 0.001s\r\n"
    assert pin == f"{engine.pin_id}\r\n\r\n".encode()
    assert got.data == b"hello"


async def test_the_age_counts_for_the_bytes_that_a_request_wants(bench: Bench) -> None:
    """The size of a message is that of its subject, reply, headers and data."""
    line = b"Natsd-Staleness: 0.001s\r\n"
    engine = bench.engine()
    engine.mark_with(lambda: line)
    bench.listen("inbox")
    bench.append("a", data=b"hello")
    bench.pull(b'{"batch":1,"max_bytes":1000}')
    first = (await bench.take())[0]
    assert first.reply is not None
    size = len("a") + len(first.reply) + len(b"NATS/1.0\r\n") + len(line) + 2 + len(b"hello")
    bench.append("a", data=b"hello")
    bench.pull(b'{"batch":1,"max_bytes":%d}' % (size - 1))
    assert (await bench.take())[0].status == "409 Message Size Exceeds MaxBytes"
    bench.pull(b'{"batch":1,"max_bytes":%d}' % size)
    assert (await bench.take())[0].data == b"hello"


async def test_filters(bench: Bench) -> None:
    engine = bench.engine(EngineSettings(stream="S", filters=("a.*", "b")))
    bench.listen("inbox")
    bench.append("a.1", "x", "b", "a", "a.2", "x")
    assert engine.num_pending == 3
    bench.pull(b"10")
    assert await bench.take_messages() == [(1, 1, 1, 2), (1, 3, 2, 1), (1, 5, 3, 0)]
    bench.append("x", "b")
    assert await bench.take_messages() == [(1, 8, 4, 0)]


async def test_new_filters(bench: Bench) -> None:
    engine = bench.engine(EngineSettings(stream="S", filters=("a",)))
    bench.listen("inbox")
    bench.append("a", "b", "a", "b", "a")
    bench.pull()
    assert await bench.take_messages() == [(1, 1, 1, 2)]
    engine.configure(EngineSettings(stream="S", filters=("b",)))
    assert engine.num_pending == 2
    bench.pull(b"2")
    assert await bench.take_messages() == [(1, 2, 2, 1), (1, 4, 3, 0)]
    engine.configure(EngineSettings(stream="S"))
    assert engine.num_pending == 1
    with pytest.raises(ValueError, match="never change"):
        engine.configure(EngineSettings(stream="S", ack_policy=AckPolicyCode.NONE))


@pytest.mark.parametrize("filters", [(), ("k.*",)])
async def test_last_per_subject(bench: Bench, filters: tuple[str, ...]) -> None:
    """After the last message of each subject come new ones.

    A message that is replaced before its delivery is not pending.
    """
    bench.append("k.1", "k.2", "k.1", "k.3")
    engine = bench.engine(
        EngineSettings(stream="S", filters=filters), start=2, last_per_subject=[2, 3, 4]
    )
    bench.listen("inbox")
    assert engine.num_pending == 3
    bench.pull()
    assert await bench.take_messages() == [(1, 2, 1, 2)]
    await bench.store.delete(3)
    bench.append("k.1")
    assert engine.num_pending == 2
    bench.pull(b"5")
    assert await bench.take_messages() == [(1, 4, 2, 1), (1, 5, 3, 0)]
    assert engine.num_pending == 0


async def test_a_start_in_the_future(bench: Bench) -> None:
    engine = bench.engine(start=4)
    bench.listen("inbox")
    bench.append(*"abc")
    bench.pull(b"5")
    assert await bench.take() == []
    assert engine.num_pending == 0
    bench.append("d", "e")
    assert [got.subject for got in await bench.take()] == ["d", "e"]


async def test_what_is_not_visible_is_not_delivered(bench: Bench) -> None:
    engine = bench.engine(EngineSettings(stream="S", filters=("a", "b")))
    bench.listen("inbox")
    bench.pull(b"5")
    bench.store.append("a", None, b"", 1)
    bench.store.append("b", None, b"", 1)
    await bench.settle()
    assert engine.num_pending == 0 or bench.readers.visible == 2
    bench.readers.durable(2)
    assert await bench.take_messages() == [(1, 1, 1, 1), (1, 2, 2, 0)]


async def test_pause(bench: Bench) -> None:
    engine = bench.engine()
    bench.listen("inbox")
    engine.pause(bench.clock.now_ns + 10 * SECOND_NS)
    bench.append("a")
    bench.pull(b'{"batch":5,"expires":60000000000}')
    assert await bench.take() == []
    await bench.advance(9)
    assert await bench.take() == []
    await bench.advance(1)
    assert len(await bench.take()) == 1
    engine.pause(bench.clock.now_ns + 10 * SECOND_NS)
    bench.append("a")
    assert await bench.take() == []
    engine.resume()
    assert len(await bench.take()) == 1


async def test_replay_as_it_was_published(bench: Bench) -> None:
    engine = bench.engine(
        EngineSettings(stream="S", replay_original=True, ack_policy=AckPolicyCode.NONE), begin=False
    )
    bench.listen("inbox")
    bench.append("a")
    await bench.advance(5)
    bench.append("b")
    await bench.advance(10)
    engine.start(1)
    bench.pull(b"9")
    assert [got.subject for got in await bench.take()] == ["a"]
    await bench.advance(4.9)
    assert await bench.take() == []
    await bench.advance(0.2)
    assert [got.subject for got in await bench.take()] == ["b"]
    bench.append("c")  # it has caught up
    assert [got.subject for got in await bench.take()] == ["c"]


async def test_messages_that_are_gone_are_passed_by(bench: Bench) -> None:
    bench.readers.close()
    store_bench = Bench(Limits(max_msgs=2))
    engine = store_bench.engine()
    store_bench.listen("inbox")
    store_bench.append(*"abcd")
    await store_bench.settle()
    assert engine.num_pending == 2
    store_bench.pull(b"9")
    assert await store_bench.take_messages() == [(1, 3, 1, 1), (1, 4, 2, 0)]
    store_bench.append(*"efgh")
    await store_bench.settle()
    assert engine.num_ack_pending == 2  # of 3 to 8, the last two
    store_bench.close()
