"""Consumers that were deleted after the last RAFT snapshot, when servers start again."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from tests.jetstream.replicas.servers import Server, Servers, cluster
from tests.jetstream.replicas.test_stream_replica import work
from tests.waiting import eventually_within

WORKER = ConsumerConfig(durable_name="worker", ack_policy=AckPolicy.EXPLICIT)


async def create(servers: Servers) -> Server:
    """Make a stream with a consumer, and have all snapshots know it; return the leader."""
    await servers.create(subjects=["orders.>"])
    leader = await servers.leader()
    await leader.stream.create_consumer(WORKER, "create")
    for number in range(70):
        await servers.store("orders.new", b"%d" % number)
    for each in servers.all:
        await eventually_within(lambda at=each: at.group.node.log.snapshot.index > 50)
    return await servers.leader()


async def restart_all(servers: Servers) -> None:
    await asyncio.gather(*(each.stop() for each in servers.all))
    for each in servers.all:
        await each.start()
        await servers.serve(each)


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_all_servers_start_again_after_a_consumer_was_deleted(
    tmp_path: Path, is_made_again: bool
) -> None:
    async with cluster(tmp_path) as servers:
        leader = await create(servers)
        await work(leader, 2)
        await leader.stream.delete_consumer("worker")
        if is_made_again:
            await leader.stream.create_consumer(WORKER, "create")
            await work(leader, 3)
        await servers.agree()
        await restart_all(servers)
        await servers.store("orders.new", b"more")
        await servers.agree()
        assert [each.transfer.fetched for each in servers.all] == [0, 0, 0]
        leader = await servers.leader()
        assert list(leader.stream.consumers) == (["worker"] if is_made_again else [])
        if is_made_again:
            assert leader.stream.consumers["worker"].store.tracker.floor_stream == 3


async def test_a_consumer_whose_deletion_nobody_agreed_to_is_fetched(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader = await create(servers)
        await work(leader, 2)
        await servers.agree()
        servers.cut(leader)
        await leader.stream.delete_consumer("worker")
        await eventually_within(lambda: leader.group.node.log.is_synced)
        await servers.leader(but=leader)
        await servers.store("orders.new", b"more")
        await leader.stop()
        shutil.rmtree(leader.stream_directory / "obs" / "worker", ignore_errors=True)
        servers.network.cut.clear()
        await leader.start()
        await servers.serve(leader)
        await eventually_within(lambda: "worker" in leader.stream.consumers)
        await servers.agree()
        assert leader.transfer.fetched == 1
