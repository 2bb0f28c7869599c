"""Fast batches: messages are stored as they come, and acknowledged in groups (ADR-50)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from tests.jetstream.behaviour.api import Api, Json, error_text
from tests.jetstream.behaviour.conftest import Connect, StartJetStream

STORAGE = pytest.mark.parametrize("storage", ["memory", "file"])
START, APPEND, COMMIT, COMMIT_BEFORE, PING = range(5)


class Batch:
    """The publisher's side of a batch; `answers` is the subscription to its inbox."""

    def __init__(
        self, nc: Client, inbox: str, answers: Subscription, *, flow: int, gaps: str
    ) -> None:
        self.nc = nc
        self.answers = answers
        self.prefix = f"{inbox}.{flow}.{gaps}"
        self.count = 0

    async def send(
        self,
        operation: int,
        subject: str = "s.1",
        data: bytes = b"",
        *,
        sequence: int = 0,
        **headers: str,
    ) -> None:
        self.count = sequence or self.count + 1
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await self.nc.publish(
            subject, data, f"{self.prefix}.{self.count}.{operation}.$FI", headers=named or None
        )

    async def start(self, subject: str = "s.1", **headers: str) -> Json:
        """Send the first message and return the flow message that answers it."""
        await self.send(START, subject, **headers)
        return await self.heard()

    async def heard(self) -> Json:
        answer: Json = json.loads((await self.answers.next_msg(5)).data)
        return answer

    async def heard_error(self, code: int) -> str:
        answer = await self.heard()
        assert answer["stream"] == "S"
        return error_text(answer["error"], code)

    async def silent(self) -> bool:
        """Return whether no more answers have come once everything before is answered."""
        await self.nc.request("$JS.API.INFO", b"", 5)
        return self.answers.pending_msgs == 0


async def begin(nc: Client, *, flow: int = 10, gaps: str = "fail", batch_id: str = "fast") -> Batch:
    inbox = f"{nc.new_inbox()}.{batch_id}"
    answers = await nc.subscribe(f"{inbox}.>")
    return Batch(nc, inbox, answers, flow=flow, gaps=gaps)


async def create(api: Api, **config: Any) -> None:
    await api.create_stream("S", subjects=["s.>"], allow_batched=True, **config)


def ack(sequence: int, messages: int) -> Json:
    return {"type": "ack", "seq": sequence, "msgs": messages}


@STORAGE
async def test_stored_as_they_come(api: Api, storage: str) -> None:
    """The first answer tells how often the server will acknowledge."""
    await create(api, storage=storage)
    batch = await begin(api.nc, flow=3)
    assert await batch.start() == ack(0, 3)
    for _ in range(6):
        await batch.send(APPEND)
    assert await batch.heard() == ack(3, 3)
    assert await batch.heard() == ack(6, 3)
    assert (await api.stream_state("S"))["messages"] == 7
    await batch.send(COMMIT)
    assert await batch.heard() == {"stream": "S", "seq": 8, "batch": "fast", "count": 8}
    assert await batch.silent()


async def test_the_end_of_a_batch_need_not_be_a_message(api: Api) -> None:
    await create(api)
    batch = await begin(api.nc)
    await batch.start()
    await batch.send(APPEND)
    await batch.send(COMMIT_BEFORE, "s.never")
    assert await batch.heard() == {"stream": "S", "seq": 2, "batch": "fast", "count": 2}
    assert (await api.stream_state("S"))["messages"] == 2


async def test_a_batch_of_one(api: Api) -> None:
    await create(api)
    batch = await begin(api.nc)
    await batch.send(COMMIT)
    assert await batch.heard() == {"stream": "S", "seq": 1, "batch": "fast", "count": 1}
    assert await batch.silent()


async def test_flow_is_at_most_500(api: Api) -> None:
    await create(api)
    batch = await begin(api.nc, flow=60_000)
    assert await batch.start() == ack(0, 500)
    for _ in range(1000):
        await batch.send(APPEND)
    assert await batch.heard() == ack(500, 500)
    assert await batch.heard() == ack(1000, 500)


@pytest.mark.parametrize("flow", ["0", "x", "-1"])
async def test_flow_that_is_none_is_10(api: Api, flow: str) -> None:
    await create(api)
    batch = await begin(api.nc)
    batch.prefix = batch.prefix.replace(".10.", f".{flow}.")
    assert await batch.start() == ack(0, 10)


async def test_several_publishers_begin_slowly_and_share(api: Api) -> None:
    await create(api)
    first = await begin(api.nc, flow=400, batch_id="first")
    assert await first.start() == ack(0, 400)
    second = await begin(api.nc, flow=400, batch_id="second")
    assert await second.start() == ack(0, 1)
    for _ in range(400):
        await first.send(APPEND)
    assert await first.heard() == ack(400, 250)
    expected, flow = 0, 1
    heard = []
    for _ in range(300):
        await second.send(APPEND)
    while expected + flow <= 301:
        answer = await second.heard()
        heard.append(answer["msgs"])
        expected, flow = answer["seq"], answer["msgs"]
    assert heard == sorted(heard)
    assert heard[-1] > 100


class TestGaps:
    async def test_end_the_batch(self, api: Api) -> None:
        """The earlier messages are stored and acknowledged."""
        await create(api)
        batch = await begin(api.nc)
        await batch.start()
        await batch.send(APPEND)
        await batch.send(APPEND, sequence=5)
        assert await batch.heard() == {"type": "gap", "last_seq": 3, "seq": 5}
        assert await batch.heard() == {"stream": "S", "seq": 2, "batch": "fast", "count": 2}
        await batch.send(APPEND, sequence=3)
        await batch.heard_error(10208)
        assert (await api.stream_state("S"))["messages"] == 2

    async def test_may_be_allowed(self, api: Api) -> None:
        await create(api)
        batch = await begin(api.nc, gaps="ok", flow=4)
        await batch.start()
        await batch.send(APPEND, sequence=4)
        assert await batch.heard() == {"type": "gap", "last_seq": 2, "seq": 4}
        assert await batch.heard() == ack(4, 4)
        await batch.send(COMMIT)
        assert await batch.heard() == {"stream": "S", "seq": 3, "batch": "fast", "count": 5}

    async def test_backwards(self, api: Api) -> None:
        """A repeated sequence ends the batch, also if gaps are allowed."""
        await create(api)
        for gaps in ("ok", "fail"):
            batch = await begin(api.nc, gaps=gaps, batch_id=gaps)
            await batch.start()
            await batch.send(APPEND)
            await batch.send(APPEND, sequence=2)
            acked = await batch.heard()
            assert (acked["batch"], acked["count"]) == (gaps, 2)

    async def test_pings_find_them(self, api: Api) -> None:
        await create(api)
        batch = await begin(api.nc)
        await batch.start()
        await batch.send(PING, sequence=1)
        assert await batch.heard() == ack(0, 10)
        await batch.send(PING, sequence=3)
        assert await batch.heard() == {"type": "gap", "last_seq": 2, "seq": 4}
        assert await batch.heard() == {"stream": "S", "seq": 1, "batch": "fast", "count": 1}
        batch = await begin(api.nc, gaps="ok", flow=4)
        await batch.start()
        await batch.send(PING, sequence=3)
        assert await batch.heard() == {"type": "gap", "last_seq": 2, "seq": 4}
        assert await batch.heard() == ack(0, 4)
        await batch.send(PING, sequence=9)
        assert await batch.heard() == {"type": "gap", "last_seq": 4, "seq": 10}
        assert await batch.heard() == ack(8, 4)
        await batch.send(COMMIT, sequence=10)
        assert (await batch.heard())["count"] == 10


class TestRefused:
    async def test_on_a_stream_without(self, api: Api) -> None:
        await api.create_stream("S", subjects=["s.>"])
        batch = await begin(api.nc)
        await batch.send(START)
        await batch.heard_error(10205)

    async def test_patterns(self, api: Api) -> None:
        await create(api)
        wrong = (
            "x.10.fail.1.5.$FI",
            "x.10.fail.1.x.$FI",
            "x.10.fail.0.0.$FI",
            "x.10.fail.2.0.$FI",
            "x.10.fail.1.1.$FI",
            "x.10.fail.1.3.$FI",
            "x.10.fail.x.1.$FI",
            "x.10.fail.18446744073709551615.1.$FI",
            "x.10.FAIL.1.0.$FI",
            "1.0.$FI",
            "0.$FI",
        )
        for tail in wrong:
            inbox = api.nc.new_inbox()
            answers = await api.nc.subscribe(f"{inbox}.>")
            await api.nc.publish("s.1", b"", f"{inbox}.{tail}")
            answer = json.loads((await answers.next_msg(5)).data)
            assert error_text(answer["error"], 10206), tail
        batch = await begin(api.nc, batch_id="x" * 65)
        await batch.send(START)
        await batch.heard_error(10207)
        batch = await begin(api.nc)
        await batch.send(APPEND, sequence=2)
        await batch.heard_error(10208)

    async def test_too_many_batches(
        self, start_jetstream: StartJetStream, connect: Connect
    ) -> None:
        server = await start_jetstream(
            limits={"batch": {"max_inflight_per_stream": 1, "max_inflight_total": 5}}
        )
        api = Api(await connect(server))
        await create(api)
        await (await begin(api.nc, batch_id="a")).start()
        batch = await begin(api.nc, batch_id="b")
        await batch.send(START)
        await batch.heard_error(10211)

    async def test_api_level(self, api: Api) -> None:
        await create(api)
        batch = await begin(api.nc)
        await batch.send(START, Nats_Required_Api_Level="99")
        await batch.heard_error(10185)
        batch = await begin(api.nc)
        await batch.start(Nats_Required_Api_Level="4", Other="x")
        assert (await api.nc.jetstream().get_msg("S", 1)).headers == {"Other": "x"}

    async def test_the_first_message(self, api: Api) -> None:
        """An error in the first message is answered as to a single publish; no batch begins."""
        await create(api)
        batch = await begin(api.nc)
        await batch.send(START, Nats_Expected_Last_Sequence="7")
        assert await batch.heard() == ack(0, 10)
        await batch.heard_error(10071)
        await batch.send(APPEND)
        await batch.heard_error(10208)

    async def test_a_later_message_ends_the_batch(self, api: Api) -> None:
        await create(api)
        batch = await begin(api.nc)
        await batch.start()
        await batch.send(APPEND, Nats_Expected_Last_Sequence="7")
        told = await batch.heard()
        assert (told["type"], told["seq"]) == ("err", 2)
        assert error_text(told["error"], 10071) == "wrong last sequence: 1"
        assert await batch.heard() == {"stream": "S", "seq": 1, "batch": "fast", "count": 1}

    async def test_unless_gaps_are_allowed(self, api: Api) -> None:
        await create(api)
        batch = await begin(api.nc, gaps="ok")
        await batch.start()
        await batch.send(APPEND, Nats_Expected_Last_Sequence="7")
        assert (await batch.heard())["type"] == "err"
        await batch.send(APPEND)
        await batch.send(COMMIT, Nats_Expected_Last_Sequence="7")
        assert (await batch.heard())["type"] == "err"
        assert await batch.heard() == {"stream": "S", "seq": 2, "batch": "fast", "count": 3}

    async def test_what_the_store_has_no_room_for(self, api: Api) -> None:
        await create(api, discard="new", max_msgs=1)
        batch = await begin(api.nc)
        await batch.start()
        await batch.send(APPEND)
        assert error_text((await batch.heard())["error"], 10077) == "maximum messages exceeded"
        assert (await batch.heard())["count"] == 1


class TestDuplicates:
    async def test_pass_for_stored(self, api: Api) -> None:
        await create(api)
        await api.publish("s.1", Nats_Msg_Id="known")
        batch = await begin(api.nc, flow=2)
        await batch.start(Nats_Msg_Id="known")
        await batch.send(APPEND, Nats_Msg_Id="new")
        assert await batch.heard() == ack(2, 2)
        await batch.send(COMMIT, Nats_Msg_Id="new")
        assert await batch.heard() == {"stream": "S", "seq": 2, "batch": "fast", "count": 3}
        assert (await api.stream_state("S"))["messages"] == 2

    async def test_alone(self, api: Api) -> None:
        await create(api)
        await api.publish("s.1", Nats_Msg_Id="known")
        batch = await begin(api.nc)
        await batch.send(COMMIT, Nats_Msg_Id="known")
        assert await batch.heard() == {
            "stream": "S",
            "seq": 1,
            "duplicate": True,
            "batch": "fast",
            "count": 1,
        }


async def test_forgotten_when_idle(start_jetstream: StartJetStream, connect: Connect) -> None:
    """The stored messages stay."""
    server = await start_jetstream(limits={"batch": {"timeout": "100ms"}})
    api = Api(await connect(server))
    await create(api)
    batch = await begin(api.nc)
    await batch.start()
    answer: Json = {"type": "ack"}
    while "error" not in answer:
        await asyncio.sleep(0.3)
        await batch.send(APPEND)
        answer = await batch.heard()
    assert error_text(answer["error"], 10208)
    assert (await api.stream_state("S"))["messages"] == 1


async def test_with_atomic_batches(api: Api) -> None:
    """The reply subject makes a message part of a fast batch, whatever its headers are."""
    await create(api, allow_atomic=True)
    batch = await begin(api.nc)
    await batch.start(Nats_Batch_Id="atomic", Nats_Batch_Sequence="1")
    assert (await api.stream_state("S"))["messages"] == 1


@STORAGE
async def test_fifty_publishers(api: Api, storage: str) -> None:
    """Each of 50 publishers fills its window, and every message is stored in its order."""
    await create(api, storage=storage)

    async def publish(name: str) -> Json:
        batch = await begin(api.nc, flow=100, batch_id=name)
        flow = (await batch.start(f"s.{name}"))["msgs"]
        told = 0
        while batch.count < 99:
            while batch.count < 99 and batch.count < told + 2 * flow:
                await batch.send(APPEND, f"s.{name}", b"%d" % (batch.count + 1))
            if batch.count < 99:
                answer = await batch.heard()
                told, flow = answer["seq"], answer["msgs"]
        await batch.send(COMMIT, f"s.{name}", b"100")
        answer = await batch.heard()
        while "type" in answer:
            answer = await batch.heard()
        return answer

    acked = await asyncio.gather(*(publish(f"p{number}") for number in range(50)))
    assert [answer["count"] for answer in acked] == [100] * 50
    assert (await api.stream_state("S"))["messages"] == 5000
    pulled = await api.nc.jetstream().pull_subscribe("s.p7", durable="C")
    payloads = [int(message.data or b"1") for message in await pulled.fetch(100, timeout=5)]
    assert payloads == list(range(1, 101))
