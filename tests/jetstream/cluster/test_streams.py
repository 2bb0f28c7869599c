"""Streams of a cluster of real servers: made anywhere, used from anywhere, moved and scaled."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from nats.js import JetStreamContext
from nats.js.errors import APIError, BadRequestError, NotFoundError

from natsd.jetstream.meta_group.cluster import LOGS_DIRECTORY
from natsd.raft.entry import Health
from natsd.raft.storage.raft_logs import GroupWrite, RaftLogs
from natsd.store.disk.real_disk import RealDisk
from natsd.testing.nats_cluster import NatsCluster
from tests.jetstream.cluster.asking import NAMES, ask, has_replicas, wait_until_whole


async def test_a_stream_is_used_through_any_server(cluster: NatsCluster) -> None:
    clients = [await cluster.connect(at) for at in range(3)]
    streams = [client.jetstream() for client in clients]
    events = await clients[0].subscribe("$JS.EVENT.ADVISORY.STREAM.CREATED.S")
    await clients[0].flush()
    await streams[0].add_stream(name="S", subjects=["s.>"], num_replicas=3)
    assert b'"action":"create"' in (await events.next_msg(timeout=5)).data
    for at, js in enumerate(streams):
        ack = await js.publish(f"s.{at}", b"%d" % at)
        assert (ack.stream, ack.seq) == ("S", at + 1)
    for js in streams:
        info = await js.stream_info("S")
        assert info.state.messages == 3
        assert info.cluster is not None
        assert {info.cluster.leader, *(each.name for each in info.cluster.replicas or ())} == {
            *NAMES
        }
        assert (await js.get_msg("S", 2)).data == b"1"
    pull = await streams[1].pull_subscribe("s.>", "d", "S")
    for message in await pull.fetch(3):
        await message.ack_sync()
    consumer = await streams[2].consumer_info("S", "d")
    assert (consumer.ack_floor.stream_seq, consumer.num_pending) == (3, 0)  # type: ignore[union-attr]  # it is there
    assert [each.config.name for each in await streams[2].streams_info()] == ["S"]
    assert (await streams[1].account_info()).streams == 1
    await streams[2].delete_stream("S")
    async with asyncio.timeout(20):  # its leader may answer until it has removed the stream
        while await is_there(streams[0], "S"):  # noqa: ASYNC110 - a server is asked
            await asyncio.sleep(0.01)


async def is_there(js: JetStreamContext, stream: str) -> bool:
    try:
        await js.stream_info(stream)
    except NotFoundError:
        return False
    return True


async def test_a_stream_with_one_replica_is_on_one_server(cluster: NatsCluster) -> None:
    clients = [await cluster.connect(at) for at in range(3)]
    streams = [client.jetstream() for client in clients]
    for at in range(6):
        await streams[at % 3].add_stream(name=f"S{at}", subjects=[f"s{at}"])
        assert (await streams[(at + 1) % 3].publish(f"s{at}", b"x")).seq == 1
    leaders = [(await streams[0].stream_info(f"S{at}")).cluster.leader for at in range(6)]  # type: ignore[union-attr]  # in a cluster
    assert set(leaders) == set(NAMES), "streams are spread"
    with pytest.raises(BadRequestError, match="overlap"):
        await streams[0].add_stream(name="T", subjects=["s3"])
    with pytest.raises(BadRequestError, match="already in use"):
        await streams[0].add_stream(name="S1", subjects=["other"])
    assert await streams[2].streams_info() != []


async def test_the_leader_dies_and_nothing_that_was_acknowledged_is_lost(
    cluster: NatsCluster,
) -> None:
    client = await cluster.connect(0)
    await client.jetstream().add_stream(name="S", subjects=["s"], num_replicas=3)
    await client.close()
    for round_ in range(2):
        leader = await asyncio.to_thread(cluster.wait_for_leader, "S")
        other = next(each for each in cluster.servers if each is not leader)
        client = await other.connect()
        js = client.jetstream()
        for at in range(20):
            assert (await js.publish("s", b"%d" % at)).seq == round_ * 21 + at + 1
        await asyncio.to_thread(cluster.stop, leader)
        await asyncio.to_thread(cluster.wait_for_leader, "S")
        assert (await js.publish("s", b"more")).seq == round_ * 21 + 21
        await asyncio.to_thread(cluster.restart, leader)
        await wait_until_whole(client, "S", set(NAMES))
        await client.close()


async def test_all_servers_are_restarted(cluster: NatsCluster) -> None:
    client = await cluster.connect(0)
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s"], num_replicas=3)
    await js.add_stream(name="R1", subjects=["r1"])
    for at in range(10):
        await js.publish("s", b"%d" % at)
        await js.publish("r1", b"%d" % at)
    await client.close()
    for at in range(3):
        await asyncio.to_thread(cluster.stop, at)
    for at in range(3):
        await asyncio.to_thread(cluster.restart, at)
    await asyncio.to_thread(cluster.wait_for_jetstream)
    await asyncio.to_thread(cluster.wait_for_leader, "S")
    await asyncio.to_thread(cluster.wait_for_leader, "R1")
    js = (await cluster.connect(1)).jetstream()
    assert (await js.publish("s", b"more")).seq == 11
    assert (await js.publish("r1", b"more")).seq == 11


async def test_a_stream_is_scaled_up_and_down(cluster: NatsCluster) -> None:
    client = await cluster.connect(0)
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s"])
    pull = await js.pull_subscribe("s", "d", "S")
    for at in range(50):
        await js.publish("s", b"%d" % at)
    (first,) = await pull.fetch(1)
    await first.ack_sync()
    await js.update_stream(name="S", subjects=["s"], num_replicas=3)
    await wait_until_whole(client, "S", set(NAMES))
    assert (await js.publish("s", b"50")).seq == 51
    leader = await asyncio.to_thread(cluster.wait_for_leader, "S")
    await ask(client, "STREAM.LEADER.STEPDOWN.S")
    while await asyncio.to_thread(leader.leads, "S"):  # noqa: ASYNC110 - a server is asked
        await asyncio.sleep(0.05)
    await asyncio.to_thread(cluster.wait_for_leader, "S")
    assert [each.data for each in await pull.fetch(2)] == [b"1", b"2"]
    assert (await js.stream_info("S")).state.messages == 51
    await js.update_stream(name="S", subjects=["s"], num_replicas=1)
    async with asyncio.timeout(20):
        while await has_replicas(client, "S"):  # noqa: ASYNC110 - a server is asked
            await asyncio.sleep(0.05)
    assert (await js.publish("s", b"51")).seq == 52
    assert (await js.get_msg("S", 30)).data == b"29"


async def test_what_does_not_fit_is_refused(cluster: NatsCluster) -> None:
    client = await cluster.connect(0)
    js = client.jetstream()
    with pytest.raises(APIError, match="no suitable peers for placement"):
        await js.add_stream(name="S", subjects=["s"], num_replicas=5)
    with pytest.raises(APIError, match="no suitable peers for placement, tags not matched"):
        await ask(client, "STREAM.CREATE.S", name="S", placement={"tags": ["far"]})
    with pytest.raises(APIError, match="stream not found"):
        await ask(client, "CONSUMER.INFO.S.c")
    with pytest.raises(APIError, match="stream not found"):
        await ask(client, "STREAM.DELETE.S")


def lose_all_files(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()


def lose_votes(directory: Path) -> None:
    """Have all groups start as if it were not known any more for whom they have voted."""
    logs = RaftLogs.open(RealDisk(), directory / "jetstream" / LOGS_DIRECTORY, os.urandom)
    states = {name: each.hard_state for name, each in logs.take_recovered().items()}
    assert len(states) > 1
    lost = [
        GroupWrite(name, state._replace(health=Health.VOTE_LOST)) for name, state in states.items()
    ]
    logs.write(lost, lambda _error: None)
    logs.close()


@pytest.mark.parametrize("lose", [lose_all_files, lose_votes])
async def test_a_server_that_lost_something_gets_it_back(
    cluster: NatsCluster, lose: Callable[[Path], None]
) -> None:
    client = await cluster.connect(0)
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s"], num_replicas=3)
    for at in range(50):
        await js.publish("s", b"%d" % at)
    wiped = cluster.servers[2]
    await asyncio.to_thread(cluster.stop, wiped)
    await asyncio.to_thread(lose, wiped.directory)
    await asyncio.to_thread(cluster.restart, wiped)
    await wait_until_whole(client, "S", set(NAMES))
    await asyncio.to_thread(cluster.stop, 1)  # the others are a majority
    await asyncio.to_thread(cluster.wait_for_leader, "S")
    js = (await cluster.connect(wiped)).jetstream()
    assert (await js.publish("s", b"more")).seq == 51
    assert (await js.get_msg("S", 30)).data == b"29"
