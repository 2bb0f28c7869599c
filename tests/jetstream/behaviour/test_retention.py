"""Interest and work-queue retention."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jetstream.behaviour.api import MS, SECOND, Api
from tests.jetstream.behaviour.conftest import Connect, StartJetStream
from tests.jetstream.behaviour.puller import Puller

STORAGE = pytest.mark.parametrize("storage", ["memory", "file"])


async def stream(api: Api, retention: str, **config: Any) -> None:
    await api.create_stream("S", subjects=["s.*"], retention=retention, **config)


async def done(api: Api, consumer: str, count: int, body: bytes = b"+ACK") -> list[int]:
    """Fetch and acknowledge `count` messages, and return their sequences."""
    puller = await Puller.of(api.nc, "S", consumer)
    await puller.ask(batch=count, expires=5 * SECOND)
    messages = await puller.messages(count)
    for message in messages:
        await api.nc.request(message.reply, body, 5)
    return [int(message.reply.split(".")[5]) for message in messages]


async def left(api: Api, expected: int) -> None:
    """Wait until `expected` messages remain."""
    await api.until_messages("S", expected)


class TestWorkQueue:
    @STORAGE
    async def test_acknowledged_is_gone(self, api: Api, storage: str) -> None:
        await stream(api, "workqueue", storage=storage)
        await api.create_consumer("S", "C")
        await api.fill("s.x", 5)
        assert await done(api, "C", 2) == [1, 2]
        await left(api, 3)
        state = await api.stream_state("S")
        assert (state["first_seq"], state["last_seq"]) == (3, 5)

    async def test_terminated_is_gone(self, api: Api) -> None:
        await stream(api, "workqueue")
        await api.create_consumer("S", "C")
        await api.fill("s.x", 2)
        await done(api, "C", 2, b"+TERM")
        await left(api, 0)

    async def test_kept_without_consumers(self, api: Api) -> None:
        await stream(api, "workqueue")
        await api.fill("s.x", 5)
        await api.create_consumer("S", "C")
        await api.ok("CONSUMER.DELETE.S.C")
        assert (await api.stream_state("S"))["messages"] == 5

    async def test_out_of_order(self, api: Api) -> None:
        await stream(api, "workqueue")
        await api.create_consumer("S", "C")
        await api.fill("s.x", 3)
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(batch=3)
        messages = await puller.messages(3)
        await api.nc.request(messages[1].reply, b"+ACK", 5)
        await left(api, 2)
        state = await api.stream_state("S", deleted_details=True)
        assert state["deleted"] == [2]

    async def test_rules(self, api: Api) -> None:
        """A work queue requires explicit acks, deliver all, and filters without overlap."""
        await stream(api, "workqueue")
        await api.refuses_consumer("S", "C", 10084, ack_policy="none")
        await api.refuses_consumer("S", "C", 10098, ack_policy="none", deliver_subject="d")
        await api.refuses_consumer("S", "C", 10101, deliver_policy="new")
        await api.create_consumer("S", "A", filter_subject="s.a")
        await api.refuses_consumer("S", "B", 10100, filter_subject="s.a")
        await api.refuses_consumer("S", "B", 10100, filter_subject="s.*")
        await api.refuses_consumer("S", "B", 10099)
        await api.create_consumer("S", "B", filter_subjects=["s.b", "s.c"])

    async def test_each_filter_its_own(self, api: Api) -> None:
        await stream(api, "workqueue")
        await api.create_consumer("S", "A", filter_subject="s.a")
        await api.create_consumer("S", "B", filter_subject="s.b")
        for name in "abab":
            await api.publish(f"s.{name}")
        await done(api, "A", 2)
        await left(api, 2)
        await done(api, "B", 2)
        await left(api, 0)

    async def test_survives(self, start_jetstream: StartJetStream, connect: Connect) -> None:
        api = Api(await connect(await start_jetstream()))
        await stream(api, "workqueue", storage="file")
        await api.create_consumer("S", "C")
        await api.fill("s.x", 6)
        await done(api, "C", 3)
        await left(api, 3)
        api = Api(await connect(await start_jetstream()))
        assert (await api.stream_state("S"))["messages"] == 3
        assert await done(api, "C", 3) == [4, 5, 6]
        await left(api, 0)


class TestInterest:
    @STORAGE
    async def test_gone_when_all_have_it(self, api: Api, storage: str) -> None:
        await stream(api, "interest", storage=storage)
        await api.create_consumer("S", "A")
        await api.create_consumer("S", "B")
        await api.fill("s.x", 4)
        await done(api, "A", 3)
        assert (await api.stream_state("S"))["messages"] == 4
        await done(api, "B", 2)
        await left(api, 2)
        await done(api, "B", 2)
        await left(api, 1)
        await done(api, "A", 1)
        await left(api, 0)

    async def test_nobody_interested(self, api: Api) -> None:
        """Without consumers a message is acknowledged and counted, but not kept."""
        await stream(api, "interest")
        assert await api.fill("s.x", 3) == [1, 2, 3]
        state = await api.stream_state("S")
        assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 4, 3)
        await api.create_consumer("S", "A", filter_subject="s.a")
        await api.publish("s.b")
        await api.publish("s.a")
        state = await api.stream_state("S")
        assert (state["messages"], state["first_seq"], state["last_seq"]) == (1, 5, 5)

    async def test_a_consumer_leaves(self, api: Api) -> None:
        """When a consumer is deleted, the messages that only it needed are removed."""
        await stream(api, "interest")
        await api.create_consumer("S", "A")
        await api.create_consumer("S", "B")
        await api.fill("s.x", 4)
        await done(api, "A", 3)
        await api.ok("CONSUMER.DELETE.S.B")
        await left(api, 1)
        await api.ok("CONSUMER.DELETE.S.A")
        await left(api, 0)

    async def test_filters(self, api: Api) -> None:
        await stream(api, "interest")
        await api.create_consumer("S", "A", filter_subject="s.a")
        await api.create_consumer("S", "All")
        for name in "abab":
            await api.publish(f"s.{name}")
        await done(api, "All", 4)
        await left(api, 2)
        await done(api, "A", 2)
        await left(api, 0)

    async def test_a_filter_changes(self, api: Api) -> None:
        await stream(api, "interest")
        await api.create_consumer("S", "A", filter_subject="s.a")
        await api.create_consumer("S", "B", filter_subject="s.b")
        for name in "aabb":
            await api.publish(f"s.{name}")
        await api.create_consumer("S", "A", filter_subject="s.c")
        await left(api, 2)

    async def test_no_acks_needed(self, api: Api) -> None:
        """For a consumer without acks a message is done with its delivery."""
        await stream(api, "interest")
        listener = await api.nc.subscribe("d")
        await api.create_consumer("S", "A", deliver_subject="d", ack_policy="none")
        await api.fill("s.x", 3)
        for _ in range(3):
            await listener.next_msg(5)
        await left(api, 0)

    async def test_max_deliver_keeps_it(self, api: Api) -> None:
        """A message after max_deliver stays: nobody has acknowledged it."""
        await stream(api, "interest")
        await api.create_consumer("S", "A", max_deliver=1, ack_wait=50 * MS)
        await api.fill("s.x", 1)
        puller = await Puller.of(api.nc, "S", "A")
        await puller.ask(batch=2, expires=300 * MS)
        await puller.messages(1)
        await puller.line()
        assert (await api.stream_state("S"))["messages"] == 1

    async def test_survives(self, start_jetstream: StartJetStream, connect: Connect) -> None:
        api = Api(await connect(await start_jetstream()))
        await stream(api, "interest", storage="file")
        await api.create_consumer("S", "A")
        await api.create_consumer("S", "B")
        await api.fill("s.x", 5)
        await done(api, "A", 3)
        await done(api, "B", 2)
        await left(api, 3)
        api = Api(await connect(await start_jetstream()))
        assert (await api.stream_state("S"))["messages"] == 3
        assert await done(api, "B", 3) == [3, 4, 5]
        await left(api, 2)
        assert await done(api, "A", 2) == [4, 5]
        await left(api, 0)

    async def test_ack_all(self, api: Api) -> None:
        await stream(api, "interest")
        await api.create_consumer("S", "A", ack_policy="all")
        await api.fill("s.x", 5)
        puller = await Puller.of(api.nc, "S", "A")
        await puller.ask(batch=5)
        messages = await puller.messages(5)
        await api.nc.request(messages[3].reply, b"+ACK", 5)
        await left(api, 1)

    async def test_duplicates_and_deletes(self, api: Api) -> None:
        """A message that the stream removes itself needs no ack any more."""
        await stream(api, "interest", max_msgs=2)
        await api.create_consumer("S", "A")
        await api.fill("s.x", 5)
        assert await done(api, "A", 2) == [4, 5]
        await left(api, 0)
        assert (await api.consumer_info("S", "A"))["num_pending"] == 0
