"""Questions to the API of a cluster, and waiting for its answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import nats
from nats.js.errors import APIError, ServiceUnavailableError

NAMES = ("n1", "n2", "n3")


async def ask(client: nats.NATS, subject: str, **body: Any) -> Any:
    """Send an API request; return the answer, or raise what it refuses with."""
    data = json.dumps(body).encode() if body else b""
    answer = json.loads((await client.request(f"$JS.API.{subject}", data, timeout=10)).data)
    if "error" in answer:
        raise APIError.from_error(answer["error"])
    return answer


async def has_replicas(client: nats.NATS, stream: str) -> bool:
    """Tell whether a stream has replicas besides its leader, or nobody can say at the moment."""
    try:
        info = await ask(client, f"STREAM.INFO.{stream}")
    except ServiceUnavailableError:
        return True
    return bool(info["cluster"].get("replicas"))


async def is_whole(client: nats.NATS, stream: str, servers: set[str]) -> bool:
    """Tell whether these are the servers of the stream, and all of them have all of it."""
    info = (await ask(client, f"STREAM.INFO.{stream}"))["cluster"]
    others = info.get("replicas") or []
    return {info["leader"], *(each["name"] for each in others)} == servers and all(
        each["current"] and not each.get("lag") for each in others
    )


async def wait_until_whole(
    client: nats.NATS, stream: str, servers: set[str], within_s: float = 20
) -> None:
    async with asyncio.timeout(within_s):
        while not await is_whole(client, stream, servers):  # noqa: ASYNC110 - a server is asked
            await asyncio.sleep(0.05)


async def leader_of(client: nats.NATS, stream: str) -> str:
    """Return the server that leads the stream; empty: nobody does."""
    return str((await ask(client, f"STREAM.INFO.{stream}"))["cluster"].get("leader", ""))


async def hand_over(client: nats.NATS, stream: str, server: str) -> None:
    """Have that server lead the stream, and wait until it does."""
    async with asyncio.timeout(20):
        while await leader_of(client, stream) != server:
            with contextlib.suppress(APIError, TimeoutError):  # it may change by itself meanwhile
                wanted = {"preferred": server}
                await ask(client, f"STREAM.LEADER.STEPDOWN.{stream}", placement=wanted)
            await asyncio.sleep(0.05)
