"""Two sites: a stream has its replicas in one of them, and read replicas in the other one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import nats
from nats.js.errors import APIError

from natsd.testing.nats_cluster import NatsCluster
from natsd.testing.nats_server import NatsServer
from tests.jetstream.cluster.asking import ask

CONFIG = """
accounts {
  A { jetstream: enabled, users: [{user: a, password: a}] }
  $SYS { users: [{user: s, password: s}] }
}
jetstream: enabled
cluster { name: test, port: -1 }
"""
NEAR, FAR = {"server_tags": ["region:us"]}, {"server_tags": ["region:eu"]}
NEAR_NAMES = {"n1", "n2", "n3"}
READ_REPLICA = {"natsd.read_replicas": "1", "natsd.read_replica_tags": "region:eu"}


async def connect(cluster: NatsCluster, which: int | NatsServer) -> nats.NATS:
    return await cluster.connect(which, user="a", password="a")


async def create(client: nats.NATS, **settings: Any) -> dict[str, Any]:
    """Create the stream S with three replicas and one read replica; return its cluster."""
    config = {"num_replicas": 3, "metadata": READ_REPLICA, "subjects": ["s.*"], **settings}
    config |= {"name": "S", "allow_direct": True, "placement": {"tags": ["region:us"]}}
    return (await ask(client, "STREAM.CREATE.S", **config))["cluster"]


async def update(client: nats.NATS, **settings: Any) -> None:
    config = (await ask(client, "STREAM.INFO.S"))["config"]
    await ask(client, "STREAM.UPDATE.S", **{**config, **settings})


async def members(client: nats.NATS) -> tuple[set[str], set[str]]:
    """Return the servers of the replicas and of the read replicas; none if one is not current."""
    found = (await ask(client, "STREAM.INFO.S"))["cluster"]
    others = found.get("replicas", [])
    if not all(each["current"] for each in others):
        return set(), set()
    read = {each["name"] for each in others if each.get("read_replica")}
    return {found["leader"], *(each["name"] for each in others)} - read, read


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await is_so():  # noqa: ASYNC110 - a server is asked
            await asyncio.sleep(0.05)


async def wait_for_members(client: nats.NATS, replicas: set[str] | int, read: set[str]) -> None:
    """Wait until these servers, or so many, have replicas, and these have read replicas."""

    async def are_there() -> bool:
        found, reading = await members(client)
        return reading == read and (len(found) if isinstance(replicas, int) else found) == replicas

    await until(are_there)


async def read_replica_of(client: nats.NATS, cluster: NatsCluster) -> NatsServer:
    """Wait until the stream has its read replica; return its server."""

    async def is_there() -> bool:
        return len((await members(client))[1]) == 1

    await until(is_there)
    (name,) = (await members(client))[1]
    return named(cluster, name)


def named(cluster: NatsCluster, name: str) -> NatsServer:
    return next(each for each in cluster.servers if each.options.server_name == name)


def others_than(cluster: NatsCluster, *names: str) -> set[str]:
    return {each.options.server_name for each in cluster.servers} - set(names)


async def store(client: nats.NATS, data: bytes) -> int:
    """Publish until it is acknowledged, whoever comes to lead meanwhile; return the sequence."""
    headers = {"Nats-Msg-Id": data.decode()}
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(nats.errors.Error, APIError):
                return (await client.jetstream().publish("s.a", data, headers=headers)).seq
            await asyncio.sleep(0.05)


async def get(client: nats.NATS, body: bytes = b'{"last_by_subj":"s.a"}') -> Any:
    return await client.request("$JS.API.DIRECT.GET.S", body, timeout=1)


async def age_s(client: nats.NATS) -> float | None:
    """Return how old the state may be that a direct get shows; None: it does not say, or fails."""
    try:
        answer = await get(client)
    except (nats.errors.TimeoutError, nats.errors.NoRespondersError):
        return None
    text = (answer.headers or {}).get("Natsd-Staleness")
    return None if text is None else float(text.removesuffix("s"))


async def answers_as_read_replica(client: nats.NATS) -> None:
    async def is_marked() -> bool:
        return await age_s(client) is not None

    await until(is_marked)
