"""What operators do: leaders step down, servers are removed, and streams are moved."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from nats.js.api import StreamSource
from nats.js.errors import APIError

import natsd.testing
from natsd.jetstream.meta_group import meta_group
from natsd.jetstream.meta_group.cluster import LOGS_DIRECTORY
from natsd.jetstream.meta_group.meta_group import MetaGroup
from natsd.raft.storage.records import LOG_MAGIC
from natsd.server.jetstream import JetStreamError
from natsd.store.wal.format import encode_header
from natsd.testing.nats_cluster import NatsCluster
from tests.jetstream.cluster.asking import NAMES, ask, wait_until_whole

CONFIG = """
accounts {
  A { jetstream: enabled, users: [{user: a, password: a}] }
  $SYS { users: [{user: s, password: s}] }
}
jetstream: enabled
cluster { name: test, port: -1 }
"""


@pytest.fixture
async def four(tmp_path: Path) -> AsyncIterator[NatsCluster]:
    """Four servers, one more than a stream needs."""
    async with natsd.testing.cluster(4, config=CONFIG) as servers:
        await asyncio.to_thread(servers.wait_for_jetstream)
        yield servers


def names_of(cluster: NatsCluster) -> set[str]:
    return {each.options.server_name for each in cluster.servers}


async def test_a_leader_steps_down_for_the_preferred_server(cluster: NatsCluster) -> None:
    client = await cluster.connect(0)
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s"], num_replicas=3)
    await wait_until_whole(client, "S", set(NAMES))
    leader = (await ask(client, "STREAM.INFO.S"))["cluster"]["leader"]
    wanted = next(name for name in NAMES if name != leader)
    await ask(client, "STREAM.LEADER.STEPDOWN.S", placement={"preferred": wanted})
    async with asyncio.timeout(10):
        while (await ask(client, "STREAM.INFO.S"))["cluster"].get("leader") != wanted:  # noqa: ASYNC110 - a server is asked
            await asyncio.sleep(0.05)
    assert (await js.publish("s", b"x")).seq == 1
    with pytest.raises(APIError, match="no suitable peers"):
        await ask(client, "STREAM.LEADER.STEPDOWN.S", placement={"preferred": "nobody"})


async def test_streams_are_copied_across_servers(cluster: NatsCluster) -> None:
    js = (await cluster.connect(1)).jetstream()
    await js.add_stream(name="ORIGIN", subjects=["o.*"], num_replicas=3)
    await js.add_stream(name="MIRROR", mirror=StreamSource(name="ORIGIN"), num_replicas=3)
    await js.add_stream(name="ALL", sources=[StreamSource(name="ORIGIN")])
    for at in range(50):
        await js.publish(f"o.{at % 3}", b"%d" % at)
    for name in ("MIRROR", "ALL"):
        async with asyncio.timeout(20):
            while (await js.stream_info(name)).state.messages < 50:  # noqa: ASYNC110 - a server is asked
                await asyncio.sleep(0.05)
        assert (await js.get_msg(name, 50)).data == b"49"


async def test_a_replica_is_removed_from_its_server_and_made_on_another_one(
    four: NatsCluster,
) -> None:
    client = await four.connect(0, user="a", password="a")
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s"], num_replicas=3)
    for at in range(30):
        await js.publish("s", b"%d" % at)
    gone = (await ask(client, "STREAM.INFO.S"))["cluster"]["replicas"][0]["name"]
    await ask(client, "STREAM.PEER.REMOVE.S", peer=gone)
    await wait_until_whole(client, "S", names_of(four) - {gone})
    assert (await js.publish("s", b"30")).seq == 31
    with pytest.raises(APIError, match="peer not a member"):
        await ask(client, "STREAM.PEER.REMOVE.S", peer="nobody")


async def test_a_server_is_removed_for_good(four: NatsCluster) -> None:
    client = await four.connect(0, user="a", password="a")
    for number in range(4):
        await ask(client, f"STREAM.CREATE.S{number}", name=f"S{number}", num_replicas=3)
    await asyncio.to_thread(four.stop, 3)
    gone = four.servers[3].options.server_name
    system = await four.connect(0, user="s", password="s")
    await asyncio.to_thread(four.wait_for_jetstream)
    await ask(system, "SERVER.REMOVE", peer=gone)
    for number in range(4):
        await wait_until_whole(client, f"S{number}", names_of(four) - {gone})
    with pytest.raises(APIError, match="not a member"):
        await ask(system, "SERVER.REMOVE", peer=gone)


async def test_a_replica_for_which_there_is_no_server_is_made_when_one_joins() -> None:
    async with natsd.testing.cluster(3, config=CONFIG) as three:
        await asyncio.to_thread(three.wait_for_jetstream)
        client = await three.connect(0, user="a", password="a")
        await ask(client, "STREAM.CREATE.S", name="S", num_replicas=3)
        await wait_until_whole(client, "S", set(NAMES))
        gone = three.servers[2]
        await asyncio.to_thread(three.stop, gone)
        await asyncio.to_thread(three.wait_for_jetstream)
        system = await three.connect(0, user="s", password="s")
        await ask(system, "SERVER.REMOVE", peer="n3")
        await wait_until_whole(client, "S", {"n1", "n2"})
        shutil.rmtree(gone.directory)
        gone.directory.mkdir()
        with patch.object(meta_group, "REMOVED_S", 0.0):
            await asyncio.to_thread(three.restart, gone)
            await wait_until_whole(client, "S", set(NAMES))


async def test_a_server_that_was_removed_waits_before_it_joins_again(four: NatsCluster) -> None:
    """Its disk is new; nats-server takes a removed server again after five minutes."""
    system = await four.connect(0, user="s", password="s")
    removed = four.servers[3]
    await asyncio.to_thread(four.stop, removed)
    await ask(system, "SERVER.REMOVE", peer=removed.options.server_name)
    shutil.rmtree(removed.directory)
    removed.directory.mkdir()
    began_s = time.monotonic()
    with patch.object(meta_group, "REMOVED_S", 3.0):
        await asyncio.to_thread(four.restart, removed)
        await asyncio.to_thread(four.wait_for_jetstream)
    assert time.monotonic() - began_s >= 3.0
    assert removed.meta_leader()[1] == 4


async def test_one_server_at_a_time_is_removed(four: NatsCluster) -> None:
    system = await four.connect(0, user="s", password="s")
    gone, other = (each.options.server_name for each in four.servers[2:])
    await asyncio.to_thread(four.stop, 2)
    await asyncio.to_thread(four.wait_for_jetstream)
    propose = MetaGroup.propose

    async def propose_late(group: MetaGroup, change: Any) -> Any:
        await asyncio.sleep(1)  # so long the first request is being answered
        return await propose(group, change)

    with patch.object(MetaGroup, "propose", propose_late):
        first = asyncio.create_task(ask(system, "SERVER.REMOVE", peer=gone))
        await asyncio.sleep(0)
        with pytest.raises(APIError, match="member change is in progress"):
            await ask(system, "SERVER.REMOVE", peer=other)
        assert (await first)["success"]


async def test_a_stream_is_moved_off_a_server(four: NatsCluster) -> None:
    client = await four.connect(0, user="a", password="a")
    system = await four.connect(0, user="s", password="s")
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s"], num_replicas=3)
    await js.add_stream(name="R1", subjects=["r1"])
    for at in range(20):
        await js.publish("s", b"%d" % at)
        await js.publish("r1", b"%d" % at)
    leader = (await ask(client, "STREAM.INFO.S"))["cluster"]["leader"]
    await ask(system, "ACCOUNT.STREAM.MOVE.A.S", server=leader)
    await wait_until_whole(client, "S", names_of(four) - {leader})
    assert (await js.publish("s", b"20")).seq == 21
    with pytest.raises(APIError, match="not in progress"):
        await ask(system, "ACCOUNT.STREAM.CANCEL_MOVE.A.S")
    only = (await ask(client, "STREAM.INFO.R1"))["cluster"]["leader"]
    await ask(system, "ACCOUNT.STREAM.MOVE.A.R1", server=only)
    async with asyncio.timeout(20):
        while True:
            found = (await ask(client, "STREAM.INFO.R1"))["cluster"]
            if found["leader"] != only and not found.get("replicas"):
                break
            await asyncio.sleep(0.05)
    assert (await js.publish("r1", b"20")).seq == 21


async def test_an_account_without_jetstream_gets_its_streams_back(four: NatsCluster) -> None:
    """JetStream of the account is switched off and on again by reloads, while a replica fetches."""
    client = await four.connect(0, user="a", password="a")
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s"], num_replicas=3)
    await js.add_stream(name="R1", subjects=["r1"])
    for at in range(50):
        await js.publish("s", b"%d" % at)
        await js.publish("r1", b"%d" % at)
    gone = (await ask(client, "STREAM.INFO.S"))["cluster"]["replicas"][0]["name"]
    await ask(client, "STREAM.PEER.REMOVE.S", peer=gone)  # another server gets the stream
    for server in four.servers:
        await asyncio.to_thread(server.reload, CONFIG.replace("{ jetstream: enabled, ", "{ "))
    with pytest.raises(APIError, match="not enabled"):
        await ask(client, "STREAM.INFO.S")
    for server in four.servers:
        await asyncio.to_thread(server.reload, CONFIG)
    await wait_until_whole(client, "S", names_of(four) - {gone})
    assert (await js.publish("s", b"more")).seq == 51
    assert (await js.publish("r1", b"more")).seq == 51
    assert (await js.get_msg("S", 30)).data == b"29"


async def test_a_log_of_a_later_version_stops_the_start_with_one_line(
    cluster: NatsCluster,
) -> None:
    server = cluster.servers[0]
    await asyncio.to_thread(cluster.stop, server)
    log = server.directory / "jetstream" / LOGS_DIRECTORY / "log.99"
    log.write_bytes(encode_header(LOG_MAGIC, 9, 99, 1))
    with pytest.raises(JetStreamError, match=r"log\.99: was written by a later version of natsd$"):
        await asyncio.to_thread(cluster.restart, server)
