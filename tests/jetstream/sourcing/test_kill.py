"""A mirror and a source whose server is killed or stopped at random: the copies are exact.

- The mirror has the origin's messages, with the same sequences and times, and no others.
- The source has every message of its origins once, each origin's in order, and the messages to its
  own subject. One origin is a work queue, which is empty at the end.

`make torture` runs twenty times as many rounds, a hundred.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from nats.aio.client import Client

from tests.clients.target import GO_SERVER, ProcessTarget
from tests.jetstream.behaviour.api import Api, Json
from tests.jetstream.behaviour.copies import until_last
from tests.jetstream.serve import connect, kill, serve_files
from tests.store.crash import TORTURE

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(bool(GO_SERVER), reason="nats-server does not sync by default"),
]

ROUNDS = 5
IN_FLIGHT = 20
SUBJECTS = ("o.a", "o.b", "p", "w", "s")
Stored = tuple[int, str, bytes, str]
"""Sequence, subject, payload and source."""


async def create_streams(api: Api) -> None:
    await api.create_stream("O", subjects=["o.*"], storage="file")
    await api.create_stream("P", subjects=["p"], storage="file")
    await api.create_stream("W", subjects=["w"], storage="file", retention="workqueue")
    await api.create_stream("M", subjects=[], storage="file", mirror={"name": "O"})
    sources: list[Json] = [
        {"name": "O", "filter_subject": "o.a"},
        {"name": "O", "subject_transforms": [{"src": "o.b", "dest": "of.b"}]},
        {"name": "P"},
        {"name": "W"},
    ]
    await api.create_stream("S", subjects=["s"], storage="file", sources=sources)


async def load(
    client: Client, server: ProcessTarget, chance: random.Random, acknowledged: set[bytes]
) -> None:
    """Publish until the server is gone."""

    async def one(subject: str, data: bytes) -> None:
        await client.request(subject, data, 30)
        acknowledged.add(data)

    async def publish() -> None:
        while True:
            made = [
                (chance.choice(SUBJECTS), b"%x" % chance.getrandbits(64)) for _ in range(IN_FLIGHT)
            ]
            outcomes = await asyncio.gather(*(one(*each) for each in made), return_exceptions=True)
            if any(outcomes):
                return

    publishing = asyncio.ensure_future(publish())
    await asyncio.to_thread(server.process.wait)
    publishing.cancel()
    await asyncio.gather(publishing, return_exceptions=True)
    await client.close()


async def end(server: ProcessTarget, chance: random.Random) -> None:
    """Stop or kill the server in the middle of the load."""
    await asyncio.sleep(0.02 + chance.random() * 0.3)
    if chance.random() < 0.7:
        await asyncio.to_thread(kill, server)
    else:
        await asyncio.to_thread(server.stop)


async def read(api: Api, stream: str) -> list[Stored]:
    """Return all messages of the stream."""
    last = (await api.stream_state(stream))["last_seq"]
    subscription = await api.nc.jetstream().subscribe(">", stream=stream, ordered_consumer=True)
    found: list[Stored] = []
    while not found or found[-1][0] < last:
        message = await subscription.next_msg(10)
        source = (message.headers or {}).get("Nats-Stream-Source", "")
        found.append((message.metadata.sequence.stream, message.subject, message.data, source))
    await subscription.unsubscribe()
    return found


async def check(api: Api, acknowledged: set[bytes]) -> None:
    """Wait until the copies are exact."""
    origin, other = await read(api, "O"), await read(api, "P")
    own = [each for each in await read(api, "S") if each[1] == "s"]
    await until_last(api, "M", origin[-1][0])
    queued = (await api.stream_state("W"))["last_seq"]
    await until_last(api, "S", len(origin) + len(other) + len(own) + queued)
    await api.until_messages("W", 0)
    assert await read(api, "M") == origin
    stored = await read(api, "S")
    assert [each[0] for each in stored] == list(range(1, len(stored) + 1))
    for prefix, subject, taken in (
        ("O {} o.a > o.a", "o.a", [each for each in origin if each[1] == "o.a"]),
        ("O {} o.b of.b o.b", "of.b", [each for each in origin if each[1] == "o.b"]),
        ("P {} > > p", "p", other),
    ):
        expected = [(subject, data, prefix.format(at)) for at, _, data, _ in taken]
        assert [each[1:] for each in stored if each[1] == subject] == expected
    assert [each[3] for each in stored if each[1] == "w"] == [
        f"W {sequence} > > w" for sequence in range(1, queued + 1)
    ]
    assert acknowledged <= {each[2] for each in stored}


async def test_exact_through_random_restarts(tmp_path: Path) -> None:
    chance = random.Random(5)
    acknowledged: set[bytes] = set()
    for number in range(ROUNDS * TORTURE):
        server = await asyncio.to_thread(serve_files, tmp_path)
        client = await connect(server)
        if number == 0:
            await create_streams(Api(client))
        ending = asyncio.ensure_future(end(server, chance))
        await load(client, server, chance, acknowledged)
        await ending
    server = await asyncio.to_thread(serve_files, tmp_path)
    client = await connect(server)
    await check(Api(client), acknowledged)
    await client.close()
    await asyncio.to_thread(server.stop)
