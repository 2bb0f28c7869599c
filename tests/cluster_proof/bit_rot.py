"""A stream of small blocks that rot while its servers run, and reads of it.

    fill once ─▶ damage blocks ─▶ wait until the scrubs have repaired them ─▶ read at each server

The servers are those of natsd. They scrub every second from the first round on.
"""

import asyncio
import logging
import os
import random
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

import nats

from tests.cluster_proof import files
from tests.cluster_proof.clients import RoamingClient
from tests.cluster_proof.files import Damage
from tests.cluster_proof.servers import Server, Servers
from tests.cluster_proof.stored import until_settled

logger = logging.getLogger(__name__)

STREAM = "ROT"
SUBJECT = "rot"
MESSAGES = 75
CONFIG = {
    "name": STREAM,
    "subjects": [f"{SUBJECT}.>"],
    "max_bytes": 128_000,  # so a block has about twenty messages
    "allow_direct": True,
}
BLOCKS = (f"jetstream/**/streams/{STREAM}/msgs/*.blk",)
BLOCKS_MIN = 4
ANSWER_S = 10.0
SCRUBBED_S = 30.0
POLL_S = 0.1
SCRUB = "scrub_interval: 1s, scrub_speed: 1G"


def body(number: int) -> bytes:
    """Return what the message with this sequence has."""
    return random.Random(number).randbytes(1500)


async def fill(client: RoamingClient, replicas: int) -> None:
    """Create and fill the stream, unless it is there."""
    await client.api_soon(f"STREAM.CREATE.{STREAM}", **CONFIG, num_replicas=replicas)
    info = await client.api_soon(f"STREAM.INFO.{STREAM}")
    connection = await client.connected()
    for number in range(info["state"]["last_seq"] + 1, MESSAGES + 1):
        await connection.jetstream().publish(f"{SUBJECT}.{number}", body(number))


def rot(servers: Sequence[Server], chance: random.Random) -> dict[Server, int]:
    """Damage full blocks, others on each server, so that each is intact on all servers but one.

    Return the number of blocks by server.
    """
    damaged = {}
    for number, server in enumerate(servers):
        *full, _newest = files.matching(server.store, BLOCKS)
        damaged[server] = len(full[number :: len(servers)])
        for path in full[number :: len(servers)]:
            kind = chance.choice(list(Damage))
            logger.info("%s %s of %s", kind.value, path.name, server.name)
            files.damage(path, kind, chance)
    return damaged


def scrub_often(server: Server) -> None:
    """Have the server scrub every second, by a reload of its configuration."""
    text = server.config.read_text("utf-8")
    if SCRUB not in text:
        server.config.write_text(text.replace("jetstream {", f"jetstream {{ {SCRUB},"), "utf-8")
    assert server.process.pid is not None
    os.kill(server.process.pid, signal.SIGHUP)


async def scrubs(server: Server) -> dict[str, Any]:
    """Return what the server tells of its scrubs and repairs."""
    return dict((await server.seen("jsz") or {})["scrub"])


async def until_scrubbed(server: Server, before: Mapping[str, Any], damaged: int) -> None:
    """Wait until so many blocks are repaired, and a scrub has found nothing more."""
    give_up_at = time.monotonic() + SCRUBBED_S
    while True:
        now = await scrubs(server)
        last = now.get("last", {"repaired": 1, "damaged": 0})
        is_done = now["runs"] > before["runs"] + 1 and not last["repaired"]
        if is_done and now["repaired_blocks"] >= before["repaired_blocks"] + damaged:
            assert not last["damaged"], (server.name, now)
            return
        assert time.monotonic() < give_up_at, (server.name, damaged, before, now)
        await asyncio.sleep(POLL_S)


async def until_sealed(servers: Servers) -> None:
    """Wait until every server has written all full blocks for the last time."""
    for server in servers:
        give_up_at = time.monotonic() + SCRUBBED_S
        while len(files.matching(server.store, BLOCKS)) < BLOCKS_MIN:
            assert time.monotonic() < give_up_at, server.name
            await asyncio.sleep(POLL_S)


async def read(server: Server) -> None:
    """Read every message at a server; another replica than its own may answer."""
    async with await nats.connect(server.url) as client:
        for number in range(1, MESSAGES + 1):
            get = b'{"seq":%d}' % number
            found = await client.request(f"$JS.API.DIRECT.GET.{STREAM}", get, timeout=ANSWER_S)
            assert found.data == body(number), (server.name, number, found.header, found.data[:50])


async def play(
    servers: Servers, client: RoamingClient, replicas: int, chance: random.Random
) -> None:
    """Play a round: afterwards all blocks are repaired, and no message is missing."""
    await fill(client, replicas)
    await until_settled(servers, client, STREAM, replicas)
    await until_sealed(servers)
    damaged = rot(servers.all, chance)
    before = {server: await scrubs(server) for server in servers}
    for server in servers:
        scrub_often(server)
    for server in servers:
        await until_scrubbed(server, before[server], damaged[server])
    await asyncio.gather(*(read(server) for server in servers))
