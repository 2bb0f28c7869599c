"""The content of a stream, as each of its replicas has it.

A consumer with one replica is served by one server, which reads its own copy: natsd's leader, or
any of nats-server's. Each replica is made the leader, and such consumers are created until each has
served one.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass

import nats.errors

from tests.cluster_proof.clients import FAILURES, Json, Refused, RoamingClient
from tests.cluster_proof.servers import Servers
from tests.jetstream.behaviour.puller import Puller, sequence_of, status_of

TRIALS = 60
BATCH = 500
SETTLED_S = 60.0
POLL_S = 0.1
READ_S = 10.0


@dataclass(frozen=True, slots=True)
class Stored:
    """A message of the stream."""

    sequence: int
    subject: str
    payload: bytes


def peers_of(info: Json, *, learning: bool = False) -> list[str]:
    """Return the servers that have a replica, the leader first; `learning`: read replicas."""
    cluster = info.get("cluster") or {}
    replicas = cluster.get("replicas") or ()
    found = [each["name"] for each in replicas if each.get("read_replica", False) is learning]
    if learning:
        return found
    return [cluster["leader"], *found] if "leader" in cluster else []


async def until_settled(
    servers: Servers, client: RoamingClient, stream: str, replicas: int
) -> Json:
    """Wait until all servers are well and all replicas have all of a stream; return its info.

    The leader may take a follower that was just restarted for current, so each server is asked for
    its own state. While there is a load, the slower follower always lags behind by a little.
    """
    give_up_at = time.monotonic() + SETTLED_S
    while True:
        info = await client.api_soon(f"STREAM.INFO.{stream}")
        missing = await _missing(servers, stream, info, replicas)
        if not missing:
            return info
        assert time.monotonic() < give_up_at, f"{stream}: {missing}"
        await asyncio.sleep(POLL_S)


async def _missing(servers: Servers, stream: str, info: Json, replicas: int) -> str:
    """Return what a stream lacks to be whole; empty: nothing."""
    others = (info.get("cluster") or {}).get("replicas") or ()
    behind = [each for each in others if not each.get("current")]
    if behind or len(peers_of(info)) != replicas:
        return f"leader and replicas are {info.get('cluster')}"
    for server in servers:
        if await server.seen("healthz") is None:
            return f"{server.name} is not well"
    last = info["state"]["last_seq"]
    found = {name: state["last_seq"] for name, state in (await states(servers, stream)).items()}
    wanted = peers_of(info) + peers_of(info, learning=True)
    lacking = [name for name in wanted if found.get(name, -1) < last]
    return f"{lacking} do not have the messages up to {last}: {found}" if lacking else ""


async def read_replicas(
    servers: Servers, client: RoamingClient, stream: str, replicas: int
) -> dict[str, list[Stored]]:
    """Return the messages of each replica, by server."""
    info = await until_settled(servers, client, stream, replicas)
    last, found = info["state"]["last_seq"], dict[str, list[Stored]]()
    for number in range(TRIALS):
        wanted = [name for name in peers_of(info) if name not in found]
        if not wanted:
            break
        await _until_led_by(client, stream, wanted[0])
        name = f"CHECK{number}"
        config = {
            "name": name,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": 60_000_000_000,
        }
        created = await client.api_soon(
            f"CONSUMER.CREATE.{stream}.{name}", stream_name=stream, config=config
        )
        server = (created.get("cluster") or {}).get("leader") or "?"
        if server not in found:
            found[server] = await _read(client, stream, name, last)
        await client.api_soon(f"CONSUMER.DELETE.{stream}.{name}")
    return found


async def _until_led_by(client: RoamingClient, stream: str, name: str) -> None:
    """Have a server lead a stream."""
    async with asyncio.timeout(SETTLED_S):
        while True:
            info = await client.api_soon(f"STREAM.INFO.{stream}")
            if peers_of(info)[:1] == [name]:
                return
            subject = f"STREAM.LEADER.STEPDOWN.{stream}"
            with contextlib.suppress(*FAILURES, Refused):
                await client.api(subject, placement={"preferred": name})
            await asyncio.sleep(POLL_S)


async def _read(client: RoamingClient, stream: str, consumer: str, last: int) -> list[Stored]:
    puller = await Puller.of(await client.connected(), stream, consumer)
    found: list[Stored] = []
    while last and (not found or found[-1].sequence < last):
        await puller.ask(batch=BATCH, no_wait=True)
        for _ in range(BATCH):
            try:
                message = await puller.next(READ_S)
            except nats.errors.TimeoutError:
                raise AssertionError(f"{stream} cannot be read behind {len(found)}") from None
            if status_of(message) is not None:
                break
            found.append(Stored(sequence_of(message), message.subject, message.data))
    return found


async def states(servers: Servers, stream: str) -> Mapping[str, Json]:
    """Return what each server tells of its own copy of the stream at its monitoring port."""
    found: dict[str, Json] = {}
    for server in servers:
        seen = await server.seen("jsz?accounts=true&streams=true") or {}
        for account in seen.get("account_details") or ():
            for each in account.get("stream_detail") or ():
                if each["name"] == stream:
                    found[server.name] = each["state"]
    return found


def sizes(state: Json) -> tuple[int, int, int]:
    """Return what must be equal on all replicas."""
    return state["messages"], state["first_seq"], state["last_seq"]
