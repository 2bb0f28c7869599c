"""CONSUMER.RESET: a consumer starts again from a sequence (nats-server's `resetStartingSeq`)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.jetstream.behaviour.api import SECOND, Api, Json
from tests.jetstream.behaviour.conftest import Connect, StartJetStream
from tests.jetstream.behaviour.puller import Puller, deliveries_of, sequence_of

LONG = 30 * SECOND


async def consumer(api: Api, messages: int = 10, **config: Any) -> Puller:
    """Create stream S on disk with `messages` messages and its consumer C; return a puller."""
    await api.create_stream("S", subjects=["s"], storage="file", **config.pop("stream", {}))
    if messages:
        await publish(api, messages)
    await api.create_consumer("S", "C", **{"durable_name": "C", "ack_policy": "explicit", **config})
    return await Puller.of(api.nc, "S", "C")


async def publish(api: Api, messages: int) -> None:
    for _ in range(messages):
        await api.publish("s", b"x")


async def reset(api: Api, sequence: int | None = None) -> Json:
    return await api.ok("CONSUMER.RESET.S.C", b"" if sequence is None else {"seq": sequence})


def numbers(info: Json) -> tuple[int, ...]:
    """Return delivered and ack floor as pairs, then the pending messages and pending acks."""
    return (
        info["delivered"]["consumer_seq"],
        info["delivered"]["stream_seq"],
        info["ack_floor"]["consumer_seq"],
        info["ack_floor"]["stream_seq"],
        info["num_pending"],
        info["num_ack_pending"],
    )


class TestWhere:
    async def test_back_to_the_ack_floor(self, api: Api) -> None:
        puller = await consumer(api)
        await puller.ask(b"4")
        first, *_ = await puller.messages(4)
        await first.ack_sync()
        info = await reset(api)
        assert info["reset_seq"] == 2
        assert numbers(info) == (0, 1, 0, 1, 9, 0)
        assert "last_active" not in info["delivered"]
        await puller.ask(b"9")
        again = await puller.messages(9)
        assert [sequence_of(msg) for msg in again] == [*range(2, 11)]
        assert {deliveries_of(msg) for msg in again} == {1}

    @pytest.mark.parametrize("sequence", [1, 3, 10, 11])
    async def test_to_a_sequence(self, api: Api, sequence: int) -> None:
        puller = await consumer(api)
        await puller.ask(b"5")
        await puller.messages(5)
        info = await reset(api, sequence)
        assert info["reset_seq"] == sequence
        assert numbers(info) == (0, sequence - 1, 0, sequence - 1, 11 - sequence, 0)
        await publish(api, 1)
        await puller.ask(b"1")
        assert await puller.sequences(1) == [sequence]

    @pytest.mark.natsd_only  # nats-server resumes after its last message
    async def test_beyond_the_end(self, start_jetstream: StartJetStream, connect: Connect) -> None:
        """The consumer waits for a sequence beyond the end, also after a restart."""
        api = Api(await connect(await start_jetstream()))
        await consumer(api, 3)
        assert (await reset(api, 6))["num_pending"] == 0
        api = Api(await connect(await start_jetstream()))
        puller = await Puller.of(api.nc, "S", "C")
        await publish(api, 4)
        await puller.ask(b"2")
        assert await puller.sequences(2) == [6, 7]

    @pytest.mark.parametrize("policy", ["last", "new", "last_per_subject"])
    async def test_where_the_policy_chose_only_the_floor(self, api: Api, policy: str) -> None:
        await consumer(api, deliver_policy=policy, filter_subject="s")
        text = await api.fails("CONSUMER.RESET.S.C", 10204, {"seq": 10})
        assert text == "invalid reset: not allowed"
        sequence = 11 if policy == "new" else 10
        assert (await reset(api))["reset_seq"] == sequence

    @pytest.mark.parametrize(
        ("config", "text"),
        [
            ({"deliver_policy": "by_start_sequence", "opt_start_seq": 5}, "below start seq"),
            (
                {"deliver_policy": "by_start_time", "opt_start_time": "2100-01-01T00:00:00Z"},
                "below start time",
            ),
        ],
    )
    async def test_not_below_the_start(self, api: Api, config: Json, text: str) -> None:
        await consumer(api, **config)
        assert await api.fails("CONSUMER.RESET.S.C", 10204, {"seq": 4}) == f"invalid reset: {text}"
        assert (await reset(api, 30))["reset_seq"] == 30

    async def test_what_is_no_request(self, api: Api) -> None:
        await consumer(api)
        assert (await api.ok("CONSUMER.RESET.S.C", {"unknown": 1}))["reset_seq"] == 1
        for body in (b"{", {"seq": -1}, {"seq": "1"}, b"[]"):
            await api.fails("CONSUMER.RESET.S.C", 10025, body)
        await api.fails("CONSUMER.RESET.S.C", 10185, headers={"Nats-Required-Api-Level": "9"})

    @pytest.mark.natsd_only  # nats-server does not answer
    async def test_of_nothing(self, api: Api) -> None:
        await api.fails("CONSUMER.RESET.S.C", 10059)
        await api.create_stream("S", subjects=["s"])
        await api.fails("CONSUMER.RESET.S.C", 10014)


class TestWhatFollows:
    async def test_waiting_requests_wait_on(self, api: Api) -> None:
        puller = await consumer(api, 3)
        await puller.ask(batch=9, expires=LONG)
        assert await puller.sequences(3) == [1, 2, 3]
        await reset(api, 2)
        assert await puller.sequences(2) == [2, 3]
        assert (await api.consumer_info("S", "C"))["num_waiting"] == 1

    async def test_redeliveries_are_forgotten(self, api: Api) -> None:
        puller = await consumer(api, 2)
        await puller.ask(b"2")
        first, second = await puller.messages(2)
        await first.nak(delay=60)
        await second.nak()
        await api.until_consumer("S", "C", num_ack_pending=2)
        info = await reset(api, 2)
        assert (info["num_redelivered"], info["num_ack_pending"]) == (0, 0)
        await puller.ask(b"2")
        msg = await puller.message()
        assert (sequence_of(msg), deliveries_of(msg)) == (2, 1)
        await puller.nothing()

    async def test_an_ack_of_before(self, api: Api) -> None:
        """An ack of an earlier delivery changes nothing until the message is delivered again."""
        puller = await consumer(api, 3)
        await puller.ask(b"3")
        got = await puller.messages(3)
        await reset(api, 1)
        await got[2].ack()
        info = await api.consumer_info("S", "C")
        assert numbers(info) == (0, 0, 0, 0, 3, 0)

    async def test_push(self, api: Api) -> None:
        await api.create_stream("S", subjects=["s"])
        await publish(api, 3)
        heard = await api.nc.subscribe("d")
        await api.create_consumer("S", "C", deliver_subject="d", ack_policy="none")
        assert [sequence_of(await heard.next_msg(5)) for _ in range(3)] == [1, 2, 3]
        assert (await reset(api, 2))["reset_seq"] == 2
        assert [sequence_of(await heard.next_msg(5)) for _ in range(2)] == [2, 3]
        assert (await reset(api))["reset_seq"] == 4

    async def test_it_is_on_disk(self, start_jetstream: StartJetStream, connect: Connect) -> None:
        api = Api(await connect(await start_jetstream()))
        puller = await consumer(api)
        await puller.ask(b"8")
        await puller.messages(8)
        await reset(api, 5)
        api = Api(await connect(await start_jetstream()))
        assert numbers(await api.consumer_info("S", "C")) == (0, 4, 0, 4, 6, 0)

    async def test_interest(self, api: Api) -> None:
        """An interest stream drops messages that all consumers have skipped."""
        await api.create_stream("S", subjects=["s"], retention="interest", storage="file")
        for name in ("C", "D"):
            await api.create_consumer("S", name, durable_name=name, ack_policy="explicit")
        await publish(api, 5)
        await reset(api, 4)
        assert (await api.stream_state("S"))["messages"] == 5
        await api.ok("CONSUMER.RESET.S.D", {"seq": 3})
        state = await api.until_messages("S", 3)
        assert state["first_seq"] == 3

    async def test_work_queue(self, api: Api) -> None:
        """A second reset can go back to skipped messages; acknowledged ones are gone."""
        puller = await consumer(api, 5, stream={"retention": "workqueue"})
        await puller.ask(b"1")
        await (await puller.message()).ack_sync()
        await reset(api, 4)
        assert (await api.stream_state("S"))["messages"] == 4
        info = await reset(api, 1)
        assert info["num_pending"] == 4
        await puller.ask(b"4")
        assert await puller.sequences(4) == [2, 3, 4, 5]

    async def test_many_at_once(self, api: Api) -> None:
        puller = await consumer(api)
        await puller.ask(batch=1000, expires=LONG)
        await asyncio.gather(*(reset(api, 1 + number % 10) for number in range(50)))
        info = await reset(api, 3)
        assert info["reset_seq"] == 3
        await api.until_consumer("S", "C", num_pending=0, num_ack_pending=8)
