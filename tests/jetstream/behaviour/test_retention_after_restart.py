"""Messages delivered before a restart and acknowledged after it are removed from the stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from nats.aio.msg import Msg

from tests.jetstream.behaviour.api import SECOND, Api
from tests.jetstream.behaviour.conftest import Connect, StartJetStream
from tests.jetstream.behaviour.puller import Puller
from tests.jetstream.behaviour.transfer import restore, take

JOBS = 20

Finish = Callable[[Api, list[Msg]], Awaitable[None]]


async def acknowledge_each(api: Api, jobs: list[Msg]) -> None:
    for job in jobs:
        await api.nc.request(job.reply, b"+ACK", 5)


async def terminate_each(api: Api, jobs: list[Msg]) -> None:
    for job in jobs:
        await api.nc.request(job.reply, b"+TERM", 5)


async def ask_for_the_next(api: Api, jobs: list[Msg]) -> None:
    """Acknowledge with `+NXT`; its answer is the next message."""
    for job in jobs:
        await api.nc.publish(job.reply, b'+NXT {"batch":1,"no_wait":true}', reply="unheard")
    await api.nc.flush()


async def acknowledge_the_last(api: Api, jobs: list[Msg]) -> None:
    await api.nc.request(jobs[-1].reply, b"+ACK", 5)


async def in_work(api: Api, **config: Any) -> list[Msg]:
    """Return all jobs, delivered and not acknowledged."""
    await api.create_consumer("S", "C", ack_wait=60 * SECOND, **config)
    await api.fill("s.x", JOBS)
    puller = await Puller.of(api.nc, "S", "C")
    await puller.ask(batch=JOBS)
    return await puller.messages(JOBS)


ONE_BY_ONE: dict[str, tuple[Finish, dict[str, Any]]] = {
    "ack": (acknowledge_each, {}),
    "term": (terminate_each, {}),
    "next": (ask_for_the_next, {}),
    "filtered": (acknowledge_each, {"filter_subject": "s.x"}),
}
IN_ANY_WAY = {**ONE_BY_ONE, "ack-all": (acknowledge_the_last, {"ack_policy": "all"})}


@pytest.mark.parametrize(
    ("retention", "finish", "config"),
    [
        pytest.param(retention, *ways[way], id=f"{retention}-{way}")
        for retention, ways in (("workqueue", ONE_BY_ONE), ("interest", IN_ANY_WAY))
        for way in ways
    ],
)
async def test_jobs_in_work_while_the_server_restarts(
    start_jetstream: StartJetStream,
    connect: Connect,
    retention: str,
    finish: Finish,
    config: dict[str, Any],
) -> None:
    api = Api(await connect(await start_jetstream()))
    await api.create_stream("S", subjects=["s.*"], retention=retention, storage="file")
    jobs = await in_work(api, **config)
    api = Api(await connect(await start_jetstream()))
    await finish(api, jobs)
    await api.until_messages("S", 0)
    floor = (await api.consumer_info("S", "C"))["ack_floor"]
    assert floor["stream_seq"] == JOBS


@pytest.mark.parametrize(("finish", "config"), IN_ANY_WAY.values(), ids=IN_ANY_WAY)
async def test_the_first_acks_after_a_stream_became_interest(
    api: Api, finish: Finish, config: dict[str, Any]
) -> None:
    await api.create_stream("S", subjects=["s.*"])
    jobs = await in_work(api, **config)
    await api.update_stream("S", subjects=["s.*"], retention="interest")
    await finish(api, jobs)
    await api.until_messages("S", 0)


class TestWhatNobodyAskedFor:
    """Existing messages are kept when a stream becomes one of interest, and when one starts."""

    async def test_waits_for_consumers_to_come(self, api: Api) -> None:
        await api.create_stream("S", subjects=["s.*"])
        await api.fill("s.x", 10)
        await api.update_stream("S", subjects=["s.*"], retention="interest")
        await api.create_consumer("S", "C")
        assert (await api.consumer_info("S", "C"))["num_pending"] == 10
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(batch=10)
        await acknowledge_each(api, await puller.messages(10))
        await api.until_messages("S", 0)

    async def test_lets_go_of_what_all_who_asked_have(self, api: Api) -> None:
        await api.create_stream("S", subjects=["s.*"])
        await api.create_consumer("S", "A", filter_subject="s.a")
        await api.create_consumer("S", "B", filter_subject="s.b")
        for name in "aaabbbccc":
            await api.publish(f"s.{name}")
        puller = await Puller.of(api.nc, "S", "A")
        await puller.ask(batch=2)
        await acknowledge_each(api, await puller.messages(2))
        await api.update_stream("S", subjects=["s.*"], retention="interest")
        await api.until_messages("S", 7)
        state = await api.stream_state("S", subjects_filter=">")
        assert state["subjects"] == {"s.a": 1, "s.b": 3, "s.c": 3}
        await api.publish("s.c")
        assert (await api.stream_state("S"))["messages"] == 7

    async def test_keeps_it_after_a_restart(
        self, start_jetstream: StartJetStream, connect: Connect
    ) -> None:
        api = Api(await connect(await start_jetstream()))
        await api.create_stream("S", subjects=["s.*"], storage="file")
        await api.fill("s.x", 10)
        await api.update_stream("S", subjects=["s.*"], retention="interest", storage="file")
        api = Api(await connect(await start_jetstream()))
        assert (await api.stream_state("S"))["messages"] == 10
        await api.update_stream(
            "S", subjects=["s.*"], retention="interest", storage="file", description="again"
        )
        api = Api(await connect(await start_jetstream()))
        await api.create_consumer("S", "C")
        assert (await api.consumer_info("S", "C"))["num_pending"] == 10

    async def test_keeps_it_when_it_was_restored(
        self, start_jetstream: StartJetStream, connect: Connect
    ) -> None:
        """A restored stream without consumers keeps its messages too, also after a restart."""
        api = Api(await connect(await start_jetstream()))
        await api.create_stream("S", subjects=["s.*"], retention="interest", storage="file")
        await api.create_consumer("S", "C")
        await api.fill("s.x", 10)
        snapshot = await take(api, "S", no_consumers=True)
        await api.ok("STREAM.DELETE.S")
        await restore(api, "S", snapshot)
        assert (await api.stream_state("S"))["messages"] == 10
        api = Api(await connect(await start_jetstream()))
        assert (await api.stream_state("S"))["messages"] == 10

    async def test_keeps_what_a_consumer_wanted_that_did_not_come_back(
        self, start_jetstream: StartJetStream, connect: Connect
    ) -> None:
        """A lost memory consumer's messages are removed when any consumer is deleted."""
        api = Api(await connect(await start_jetstream()))
        await api.create_stream("S", subjects=["s.*"], retention="interest", storage="file")
        await api.create_consumer("S", "A", filter_subject="s.a")
        await api.create_consumer("S", "B", mem_storage=True)
        for name in "aabbb":
            await api.publish(f"s.{name}")
        api = Api(await connect(await start_jetstream()))
        await api.until_consumers("S", 1)
        assert (await api.stream_state("S"))["messages"] == 5
        await api.create_consumer("S", "C", filter_subject="s.c")
        await api.ok("CONSUMER.DELETE.S.C")
        await api.until_messages("S", 2)

    async def test_lets_go_of_it_when_a_consumer_leaves(self, api: Api) -> None:
        """As in nats-server, messages without interest are then removed."""
        await api.create_stream("S", subjects=["s.*"])
        await api.fill("s.x", 10)
        await api.update_stream("S", subjects=["s.*"], retention="interest")
        await api.create_consumer("S", "C", filter_subject="s.other")
        await api.ok("CONSUMER.DELETE.S.C")
        await api.until_messages("S", 0)
