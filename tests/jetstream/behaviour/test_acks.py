"""Acknowledgements of every kind, and redelivery (nats-server's `processAck`, `checkPending`)."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from nats.aio.msg import Msg

from tests.jetstream.behaviour.api import MS, SECOND, Api
from tests.jetstream.behaviour.conftest import Connect, StartJetStream
from tests.jetstream.behaviour.puller import Puller, deliveries_of, sequence_of


async def consumer(api: Api, messages: int = 0, storage: str = "memory", **config: Any) -> Puller:
    await api.create_stream("S", storage=storage, subjects=["s.*"])
    for number in range(messages):
        await api.publish(f"s.{number}", b"%d" % (number + 1))
    await api.create_consumer("S", "C", **config)
    return await Puller.of(api.nc, "S", "C")


async def ack(api: Api, message: Msg, body: bytes = b"+ACK") -> None:
    """Acknowledge a message and wait for the answer."""
    assert (await api.nc.request(message.reply, body, 5)).data == b""


async def state(api: Api) -> tuple[int, int, int]:
    """Return the numbers of pending and redelivered messages, and the stream's ack floor."""
    info = await api.consumer_info("S", "C")
    return info["num_ack_pending"], info["num_redelivered"], info["ack_floor"]["stream_seq"]


class TestExplicit:
    @pytest.mark.parametrize("body", [b"", b"+ACK", b"+OK"])
    async def test_each_on_its_own(self, api: Api, body: bytes) -> None:
        """The ack floor rises when all messages up to it are acknowledged."""
        puller = await consumer(api, 4)
        await puller.ask(batch=4)
        messages = await puller.messages(4)
        await ack(api, messages[1], body)
        assert await state(api) == (3, 0, 0)
        await ack(api, messages[0], body)
        assert await state(api) == (2, 0, 2)
        await ack(api, messages[3], body)
        await ack(api, messages[2], body)
        assert await state(api) == (0, 0, 4)
        info = await api.consumer_info("S", "C")
        assert info["ack_floor"]["consumer_seq"] == 4
        assert "last_active" in info["ack_floor"]

    async def test_twice(self, api: Api) -> None:
        """Later acks are answered too and change nothing."""
        puller = await consumer(api, 2)
        await puller.ask(batch=2)
        first, _ = await puller.messages(2)
        for _ in range(3):
            await ack(api, first)
        await ack(api, first, b"-NAK")
        assert await state(api) == (1, 0, 1)

    async def test_unasked_answers_nothing(self, api: Api) -> None:
        puller = await consumer(api, 1)
        await puller.ask()
        message = await puller.message()
        await api.nc.publish(message.reply, b"+ACK")
        await api.until_consumer("S", "C", num_ack_pending=0)

    async def test_of_another_token(self, api: Api) -> None:
        """An unknown body is no acknowledgement: the message still waits."""
        puller = await consumer(api, 1)
        await puller.ask()
        message = await puller.message()
        await api.nc.publish(message.reply, b"+NONSENSE")
        await api.nc.publish(message.reply, b"ack please")
        await api.nc.flush()
        await api.fill("s.x", 1)
        assert (await state(api))[0] == 1


class TestForged:
    @pytest.mark.parametrize(
        "tokens",
        [
            "1.2.2",  # never delivered
            "1.99.99",
            "1.0.0",
            "1.18446744073709551615.18446744073709551615",
            "1.99999999999999999999999.1",
            "1.-1.-1",
            "x.y.z",
        ],
    )
    async def test_changes_nothing(self, api: Api, tokens: str) -> None:
        puller = await consumer(api, 2)
        await puller.ask(batch=1)
        await puller.messages(1)
        for body in (b"+ACK", b"-NAK", b"+TERM", b"+WPI", b"+NXT"):
            subject = f"$JS.ACK.S.C.{tokens}.1700000000000000000.0"
            await api.nc.publish(subject, body)
        await api.nc.flush()
        await api.fill("s.x", 1)
        pending, _, floor = await state(api)
        assert (pending, floor) == (1, 0)
        await puller.ask(batch=5, no_wait=True)
        assert await puller.sequences(2) == [2, 3]

    @pytest.mark.parametrize(
        "subject",
        [
            "$JS.ACK",
            "$JS.ACK.S",
            "$JS.ACK.S.C",
            "$JS.ACK.S.C.1",
            "$JS.ACK.S.C.1.1.1",
            "$JS.ACK.S.C.1.1.1.1.1.1.1.1.1.1.1.1",
            "$JS.ACK.S.D.1.1.1.1.1",
        ],
    )
    async def test_wrong_shape(self, api: Api, subject: str) -> None:
        puller = await consumer(api, 1)
        await puller.ask()
        await puller.message()
        await api.nc.publish(subject, b"+ACK")
        await api.nc.flush()
        await api.fill("s.x", 1)
        assert (await api.consumer_info("S", "C"))["num_ack_pending"] <= 1


class TestAll:
    async def test_all_up_to_it(self, api: Api) -> None:
        puller = await consumer(api, 5, ack_policy="all")
        await puller.ask(batch=5)
        messages = await puller.messages(5)
        await ack(api, messages[2])
        assert await state(api) == (2, 0, 3)
        await ack(api, messages[0])
        assert await state(api) == (2, 0, 3)
        await ack(api, messages[4])
        assert await state(api) == (0, 0, 5)


class TestNone:
    async def test_nothing_waits(self, api: Api) -> None:
        puller = await consumer(api, 3, ack_policy="none")
        await puller.ask(batch=3)
        await puller.messages(3)
        info = await api.consumer_info("S", "C")
        assert (info["num_ack_pending"], info["num_pending"]) == (0, 0)
        assert info["ack_floor"]["stream_seq"] == 3


class TestNak:
    async def test_again_at_once(self, api: Api) -> None:
        puller = await consumer(api, 2)
        await puller.ask(batch=4)
        first, _ = await puller.messages(2)
        await api.nc.publish(first.reply, b"-NAK")
        again = await puller.message()
        assert (sequence_of(again), deliveries_of(again), again.data) == (1, 2, b"1")
        assert (await state(api))[:2] == (2, 1)
        await ack(api, again)
        assert await state(api) == (1, 0, 1)

    @pytest.mark.parametrize("body", [b'-NAK {"delay":150000000}', b"-NAK 150ms"])
    async def test_after_a_while(self, api: Api, body: bytes) -> None:
        puller = await consumer(api, 1)
        await puller.ask(batch=3)
        message = await puller.message()
        before = time.monotonic()
        await api.nc.publish(message.reply, body)
        assert deliveries_of(await puller.message()) == 2
        assert time.monotonic() - before > 0.1

    async def test_in_any_order(self, api: Api) -> None:
        """Nacked messages are redelivered before new ones."""
        puller = await consumer(api, 5)
        await puller.ask(batch=3)
        messages = await puller.messages(3)
        for message in (messages[2], messages[0]):
            await ack(api, message, b"-NAK")
        await puller.ask(batch=3)
        got = await puller.sequences(3)
        assert sorted(got[:2]) == [1, 3]
        assert got[2] == 4

    async def test_an_old_delivery(self, api: Api) -> None:
        """An ack with the reply subject of an earlier delivery counts."""
        puller = await consumer(api, 1)
        await puller.ask(batch=2)
        first = await puller.message()
        await api.nc.publish(first.reply, b"-NAK")
        assert deliveries_of(await puller.message()) == 2
        await ack(api, first)
        assert await state(api) == (0, 0, 1)


class TestInProgress:
    async def test_more_time(self, api: Api) -> None:
        """+WPI restarts the ack wait."""
        puller = await consumer(api, 1, ack_wait=800 * MS)
        await puller.ask(batch=3)
        message = await puller.message()
        start = time.monotonic()
        while time.monotonic() < start + 1.2:
            await api.nc.request(message.reply, b"+WPI", 5)
            assert puller.replies.pending_msgs == 0
            await asyncio.sleep(0.05)
        assert deliveries_of(await puller.message()) == 2


class TestTerm:
    @pytest.mark.parametrize("body", [b"+TERM", b"+TERM because of that"])
    async def test_never_again(self, api: Api, body: bytes) -> None:
        puller = await consumer(api, 2)
        await puller.ask(batch=1)
        await ack(api, await puller.message(), body)
        assert await state(api) == (0, 0, 1)
        await api.create_consumer("S", "C", ack_wait=100 * MS)
        await puller.ask(batch=2)
        assert await puller.sequences(2) == [2, 2]

    async def test_of_a_redelivered(self, api: Api) -> None:
        puller = await consumer(api, 1)
        await puller.ask(batch=2)
        await ack(api, await puller.message(), b"-NAK")
        await ack(api, await puller.message(), b"+TERM")
        assert await state(api) == (0, 0, 1)


class TestNext:
    async def ask_next(self, api: Api, puller: Puller, message: Msg, body: bytes) -> None:
        await api.nc.publish(message.reply, body, reply=puller.inbox)

    async def test_one(self, api: Api) -> None:
        puller = await consumer(api, 3)
        await puller.ask()
        await self.ask_next(api, puller, await puller.message(), b"+NXT")
        second = await puller.message()
        assert sequence_of(second) == 2
        assert (await state(api))[2] == 1
        await self.ask_next(api, puller, second, b"+NXT")
        assert await puller.sequences(1) == [3]

    async def test_some(self, api: Api) -> None:
        puller = await consumer(api, 5)
        await puller.ask()
        await self.ask_next(api, puller, await puller.message(), b"+NXT 3")
        assert await puller.sequences(3) == [2, 3, 4]
        await puller.nothing()

    async def test_a_request(self, api: Api) -> None:
        puller = await consumer(api, 2)
        await puller.ask()
        body = b'+NXT {"batch":5,"no_wait":true}'
        await self.ask_next(api, puller, await puller.message(), body)
        assert await puller.sequences(1) == [2]


class TestWait:
    async def test_over(self, api: Api) -> None:
        """After `ack_wait` a message is redelivered to any puller, without another request."""
        puller = await consumer(api, 2, ack_wait=100 * MS)
        await puller.ask(batch=4)
        assert await puller.sequences(2) == [1, 2]
        again = await puller.messages(2)
        assert [(sequence_of(m), deliveries_of(m)) for m in again] == [(1, 2), (2, 2)]
        assert again[0].reply.split(".")[6] == "3"

    async def test_backoff(self, api: Api) -> None:
        """Each delivery has its own wait, and the last wait repeats."""
        puller = await consumer(api, 1, backoff=[50 * MS, 150 * MS, 300 * MS], max_deliver=4)
        config = (await api.consumer_info("S", "C"))["config"]
        assert config["ack_wait"] == 50 * MS
        start = time.monotonic()
        await puller.ask(batch=10, expires=10 * SECOND)
        for count, waited_s in enumerate((0, 0.05, 0.2, 0.5), 1):
            assert deliveries_of(await puller.message()) == count
            assert time.monotonic() - start >= waited_s

    async def test_max_deliver(self, api: Api) -> None:
        """After the last delivery a message is not delivered again; it is pending until then."""
        puller = await consumer(api, 2, ack_wait=50 * MS, max_deliver=2)
        await puller.ask(batch=10, expires=1500 * MS)
        got = [(sequence_of(m), deliveries_of(m)) for m in await puller.messages(4)]
        assert sorted(got) == [(1, 1), (1, 2), (2, 1), (2, 2)]
        assert (await puller.line()) == "408 Request Timeout"
        await api.publish("s.x")
        await puller.ask(batch=10, expires=100 * MS)
        assert await puller.sequences(1) == [3]

    async def test_nak_does_not_go_beyond_max_deliver(self, api: Api) -> None:
        puller = await consumer(api, 1, max_deliver=2)
        await puller.ask(batch=10, expires=1500 * MS)
        for count in (1, 2):
            message = await puller.message()
            assert deliveries_of(message) == count
            await api.nc.publish(message.reply, b"-NAK")
        assert (await puller.line()) == "408 Request Timeout"

    async def test_a_message_removed_meanwhile(self, api: Api) -> None:
        puller = await consumer(api, 2, ack_wait=100 * MS)
        await puller.ask(batch=2)
        await puller.messages(2)
        await api.ok("STREAM.MSG.DELETE.S", {"seq": 1})
        await puller.ask(batch=5)
        again = await puller.message()
        assert (sequence_of(again), deliveries_of(again)) == (2, 2)
        assert (await api.consumer_info("S", "C"))["num_ack_pending"] == 1


class TestMaxAckPending:
    async def test_stops_and_goes_on(self, api: Api) -> None:
        puller = await consumer(api, 10, max_ack_pending=3)
        await puller.ask(batch=10, expires=30 * SECOND)
        messages = await puller.messages(3)
        await puller.nothing()
        await ack(api, messages[1])
        messages += await puller.messages(1)
        await puller.nothing()
        for message in (messages[0], messages[2], messages[3]):
            await ack(api, message)
        assert await puller.sequences(3) == [5, 6, 7]
        info = await api.consumer_info("S", "C")
        assert (info["num_ack_pending"], info["num_pending"]) == (3, 3)

    async def test_redelivery_goes_on(self, api: Api) -> None:
        """At the limit of pending messages, redeliveries go on."""
        puller = await consumer(api, 5, max_ack_pending=2, ack_wait=100 * MS)
        await puller.ask(batch=6, expires=30 * SECOND)
        got = await puller.sequences(6)
        assert got == [1, 2, 1, 2, 1, 2]

    async def test_raised(self, api: Api) -> None:
        puller = await consumer(api, 5, max_ack_pending=1)
        await puller.ask(batch=5, expires=30 * SECOND)
        assert await puller.sequences(1) == [1]
        await puller.nothing()
        await api.create_consumer("S", "C", max_ack_pending=3)
        assert await puller.sequences(2) == [2, 3]


class TestSurvives:
    """After a restart acknowledged messages stay so; the others are redelivered and counted on."""

    async def test_pending(self, start_jetstream: StartJetStream, connect: Connect) -> None:
        api = Api(await connect(await start_jetstream()))
        puller = await consumer(api, 5, "file", ack_wait=200 * MS)
        await puller.ask(batch=3)
        messages = await puller.messages(3)
        await ack(api, messages[1])
        before = await api.consumer_info("S", "C")
        api = Api(await connect(await start_jetstream()))
        after = await api.consumer_info("S", "C")
        for name in ("config", "created", "num_ack_pending", "num_pending", "num_redelivered"):
            assert after[name] == before[name], name
        assert after["delivered"]["stream_seq"] == 3
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(batch=4, expires=30 * SECOND)
        got = [(sequence_of(m), deliveries_of(m)) for m in await puller.messages(4)]
        assert sorted(got) == [(1, 2), (3, 2), (4, 1), (5, 1)]

    async def test_old_acks_count(self, start_jetstream: StartJetStream, connect: Connect) -> None:
        """An ack of a delivery before the restart counts."""
        api = Api(await connect(await start_jetstream()))
        puller = await consumer(api, 2, "file")
        await puller.ask(batch=2)
        messages = await puller.messages(2)
        api = Api(await connect(await start_jetstream()))
        for message in messages:
            await ack(api, message)
        assert await state(api) == (0, 0, 2)

    async def test_deliveries_are_counted_on(
        self, start_jetstream: StartJetStream, connect: Connect
    ) -> None:
        api = Api(await connect(await start_jetstream()))
        puller = await consumer(api, 1, "file", max_deliver=3, ack_wait=150 * MS)
        await puller.ask(batch=2, expires=30 * SECOND)
        assert [deliveries_of(m) for m in await puller.messages(2)] == [1, 2]
        api = Api(await connect(await start_jetstream()))
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(batch=5, expires=1500 * MS)
        assert deliveries_of(await puller.message()) == 3
        assert await puller.line() == "408 Request Timeout"


class TestSampling:
    async def test_metric(self, api: Api) -> None:
        """The ack metric tells the time between delivery and ack (nats-server's `sampleAck`)."""
        from tests.jetstream.behaviour import schemas

        puller = await consumer(api, 1, sample_freq="100%")
        listener = await api.nc.subscribe("$JS.EVENT.METRIC.CONSUMER.ACK.S.C")
        await puller.ask()
        await ack(api, await puller.message())
        metric = json.loads((await listener.next_msg(5)).data)
        schemas.check(metric)
        assert metric["type"] == "io.nats.jetstream.metric.v1.consumer_ack"
        assert (metric["stream"], metric["consumer"]) == ("S", "C")
        assert (metric["stream_seq"], metric["consumer_seq"], metric["deliveries"]) == (1, 1, 1)
        assert metric["ack_time"] > 0
