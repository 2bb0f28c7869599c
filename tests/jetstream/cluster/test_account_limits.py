"""The limits of an account hold for all servers together, and its info is the same from each.

The counts are those of nats-server 2.14.5 with the same accounts and streams: bytes count once for
each replica, and the limit of a tier R3 is that of three replicas together.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.request import urlopen

import nats
import pytest

import natsd.testing
from natsd.testing.nats_cluster import NatsCluster
from natsd.testing.nats_server import NatsServer
from tests.jetstream.cluster.asking import NAMES, ask, hand_over, leader_of, wait_until_whole
from tests.jetstream.cluster.sites import until

CONFIG = """
accounts {
  FLAT { jetstream: {max_file: 300000, max_mem: 300000}, users: [{user: flat, password: p}] }
  TIERS {
    jetstream: {tiers: {R1: {max_file: 100000}, R3: {max_file: 100000}}}
    users: [{user: tiers, password: p}]
  }
  $SYS { users: [{user: s, password: s}] }
}
jetstream: enabled
cluster { name: test, port: -1 }
"""
SIZE = 1000
STORED = SIZE + 30 + len("s")  # bytes of a message in a file
EXCEEDED = {
    "error": {
        "code": 400,
        "err_code": 10002,
        "description": "resource limits exceeded for account",
    },
    "stream": "S",
    "seq": 0,
}


@pytest.fixture
async def limited() -> AsyncIterator[NatsCluster]:
    async with natsd.testing.cluster(config=CONFIG, http_port=-1) as servers:
        await asyncio.to_thread(servers.wait_for_jetstream)
        yield servers


@pytest.fixture
async def processes() -> AsyncIterator[NatsCluster]:
    async with natsd.testing.cluster(config=CONFIG, process=True) as servers:
        await asyncio.to_thread(servers.wait_for_jetstream)
        yield servers


async def connect(cluster: NatsCluster, which: int | NatsServer, user: str = "flat") -> nats.NATS:
    return await cluster.connect(which, user=user, password="p")


async def publish(client: nats.NATS, subject: str) -> Any:
    answer = await client.request(subject, bytes(SIZE), timeout=10)
    return json.loads(answer.data)


async def fill(client: nats.NATS, subject: str, most: int = 1000) -> tuple[int, Any]:
    """Publish until it is refused, so slowly that the servers tell each other what they use.

    Return how many messages were stored, and the refusal; None: `most` messages were stored.
    """
    for count in range(most):
        answer = await publish(client, subject)
        if "error" in answer:
            return count, answer
        await asyncio.sleep(0.01)
    return most, None


async def wait_for_room(client: nats.NATS, subject: str) -> None:
    async def is_taken() -> bool:
        return "error" not in await publish(client, subject)

    await until(is_taken)


async def wait_until_refused(client: nats.NATS, subject: str) -> Any:
    answer: Any = {}
    async with asyncio.timeout(20):
        while "error" not in answer:
            answer = await publish(client, subject)
            await asyncio.sleep(0.05)
    return answer


async def infos(cluster: NatsCluster, user: str = "flat") -> list[dict[str, Any]]:
    """Return the account's info as a client of each server gets it, without its requests."""
    found = []
    for server in cluster.servers:
        client = await connect(cluster, server, user)
        info = await ask(client, "INFO")
        info.pop("api")
        found.append(info)
        await client.close()
    return found


async def test_three_replicas_count_three_times(limited: NatsCluster) -> None:
    client = await connect(limited, 0)
    await ask(client, "STREAM.CREATE.S", name="S", subjects=["s"], num_replicas=3)
    stored, refusal = await fill(client, "s")
    assert refusal == EXCEEDED
    exact = 300_000 // (3 * STORED)
    assert exact <= stored <= exact + 30, "what is on its way is not counted yet"
    await wait_until_whole(client, "S", set(NAMES))
    found = await infos(limited)
    assert found[0] == found[1] == found[2]
    assert (found[0]["storage"], found[0]["memory"]) == (3 * stored * STORED, 0)
    for leader in NAMES:  # whichever leads
        await hand_over(client, "S", leader)
        # It may not have heard yet what the others have stored last.
        assert await wait_until_refused(client, "s") == EXCEEDED
    await ask(client, "STREAM.PURGE.S")
    assert "error" not in await publish(client, "s")


async def spread(client: nats.NATS, storage: str = "file") -> dict[str, str]:
    """Create a stream with one replica on each server; return their names, by server."""
    found: dict[str, str] = {}
    for at in range(3):
        name = f"S{at}"
        await ask(client, f"STREAM.CREATE.{name}", name=name, subjects=[name], storage=storage)
        found[await leader_of(client, name)] = name
    assert set(found) == set(NAMES)
    return found


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_streams_on_other_servers_take_room_and_give_it_back(
    limited: NatsCluster, storage: str
) -> None:
    client = await connect(limited, 0)
    one, two, three = (await spread(client, storage)).values()
    assert await fill(client, one, 140) == (140, None)
    assert await fill(client, two, 140) == (140, None)
    refusal = (await fill(client, three))[1]
    assert refusal == {**EXCEEDED, "stream": three}
    for stream in (one, two):
        assert await wait_until_refused(client, stream) == {**EXCEEDED, "stream": stream}
    found = await infos(limited)
    assert found[0] == found[1] == found[2]
    used = found[0]["storage" if storage == "file" else "memory"]
    assert 300_000 - 2 * STORED < used < 300_000 + 30 * STORED
    await ask(client, f"STREAM.PURGE.{one}", keep=60)
    for stream in (two, three):
        await wait_for_room(client, stream)
    await fill(client, three)
    await ask(client, f"STREAM.DELETE.{two}")
    await wait_for_room(client, three)
    await wait_for_room(client, one)


async def test_a_tier_counts_its_own_streams_once(limited: NatsCluster) -> None:
    client = await connect(limited, 0, "tiers")
    await ask(client, "STREAM.CREATE.S", name="S", subjects=["s"], num_replicas=3)
    await ask(client, "STREAM.CREATE.R", name="R", subjects=["r"], max_bytes=50_000)
    config = {"durable_name": "c", "ack_policy": "explicit", "num_replicas": 1}
    await ask(client, "CONSUMER.DURABLE.CREATE.S.c", stream_name="S", config=config)
    stored, refusal = await fill(client, "s")
    assert refusal == EXCEEDED
    exact = 100_000 // STORED
    assert exact <= stored <= exact + 30
    assert "error" not in await publish(client, "r"), "the other tier has room"
    await wait_until_whole(client, "S", set(NAMES))
    found = await infos(limited, "tiers")
    assert found[0] == found[1] == found[2]
    info, tiers = found[0], found[0]["tiers"]
    assert (info["streams"], info["consumers"]) == (2, 1)
    assert (info["storage"], info["reserved_storage"]) == ((3 * stored + 1) * STORED, 50_000)
    assert {name: without_limits(tier) for name, tier in tiers.items()} == {
        "R1": {"storage": STORED, "reserved_storage": 50_000, "streams": 1, "consumers": 1},
        "R3": {"storage": 3 * stored * STORED, "streams": 1},
    }


def without_limits(tier: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tier.items() if value and name != "limits"}


async def test_a_read_replica_counts_as_a_replica_but_not_towards_a_tier(
    limited: NatsCluster,
) -> None:
    for user, exact in (("flat", 300_000 // (2 * STORED)), ("tiers", 100_000 // STORED)):
        client = await connect(limited, 0, user)
        config = {"allow_direct": True, "metadata": {"natsd.read_replicas": "1"}}
        await ask(client, "STREAM.CREATE.S", name="S", subjects=["s"], **config)
        stored, refusal = await fill(client, "s")
        assert refusal == EXCEEDED
        assert exact <= stored <= exact + 30
        info = await ask(client, "INFO")
        assert info["storage"] == 2 * stored * STORED
        assert info.get("tiers", {}).get("R1", {}).get("storage") in (None, stored * STORED)


def reserved(server: NatsServer) -> int:
    with urlopen(f"{server.monitoring_url}/jsz") as answer:
        return int(json.load(answer)["reserved_storage"])


async def test_every_replica_reserves_what_the_stream_has_reserved_last(
    limited: NatsCluster,
) -> None:
    client = await connect(limited, 0)

    async def all_reserve(size: int) -> None:
        async def do() -> bool:
            return [await asyncio.to_thread(reserved, each) for each in limited.servers] == 3 * [
                size
            ]

        await until(do)

    config = {"name": "S", "subjects": ["s"], "num_replicas": 3}
    await ask(client, "STREAM.CREATE.S", **config, max_bytes=50_000)
    await all_reserve(50_000)
    await ask(client, "STREAM.UPDATE.S", **config, max_bytes=70_000)
    await all_reserve(70_000)
    await ask(client, "STREAM.DELETE.S")
    await all_reserve(0)


async def test_requests_are_counted_wherever_they_are_answered(limited: NatsCluster) -> None:
    client = await connect(limited, 0)
    await spread(client)
    before = (await ask(client, "INFO"))["api"]
    for at in range(3):
        await ask(client, f"STREAM.INFO.S{at}")  # each answered by another server
    after = (await ask(client, "INFO"))["api"]
    assert after["total"] >= before["total"] + 4  # the first question for the account, too


async def test_what_a_killed_server_had_counts_and_its_restart_heals(
    processes: NatsCluster,
) -> None:
    client = await connect(processes, 0)
    streams = await spread(client)
    other = await asyncio.to_thread(processes.wait_for_jetstream)
    server = next(each for each in processes.servers if each is not other)
    killed, kept = server.options.server_name, other.options.server_name
    assert await fill(client, streams[killed], 200) == (200, None)
    assert (await fill(client, streams[kept]))[1] is not None
    await client.close()
    await asyncio.to_thread(processes.kill, server)
    client = await connect(processes, other)
    assert "error" in await publish(client, streams[kept]), "it may come back with its bytes"
    await asyncio.to_thread(processes.restart, server)
    await asyncio.to_thread(processes.wait_for_leader, streams[killed], "FLAT")
    refusal = {**EXCEEDED, "stream": streams[killed]}
    assert await wait_until_refused(client, streams[killed]) == refusal, "it knows the others' use"
    await ask(client, f"STREAM.PURGE.{streams[killed]}")
    await wait_for_room(client, streams[kept])
    found = await infos(processes)
    assert found[0] == found[1] == found[2]
