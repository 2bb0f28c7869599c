"""kill -9 while delayed messages are published and consumed: each message comes exactly once.

`make torture` runs more rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from pathlib import Path

import pytest
from nats.aio.client import Client

from tests.clients.target import GO_SERVER, ProcessTarget
from tests.jetstream.behaviour.api import Api
from tests.jetstream.serve import GONE, connect, kill, serve_files
from tests.waiting import eventually_within

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(bool(GO_SERVER), reason="nats-server knows no Nats-Delay"),
]

ROUNDS = 8
WAITED_S = 40.0


class History:
    """The clients' knowledge, over all the lives of the server."""

    def __init__(self) -> None:
        self.acknowledged: set[str] = set()
        self.tried = 0
        self.seen: dict[str, set[int]] = {}  # name -> the sequences of its deliveries

    async def publish(self, nc: Client, chance: random.Random) -> None:
        """Publish delayed messages until the server is gone."""
        while True:
            self.tried += 1
            name = f"m{self.tried}"
            headers = {"Nats-Delay": f"{chance.randint(1, 400)}ms"}
            reply = await nc.request("work.a", name.encode(), 2, headers=headers)
            assert "error" not in json.loads(reply.data), reply.data
            self.acknowledged.add(name)

    async def consume(self, nc: Client) -> None:
        work = await nc.jetstream().pull_subscribe_bind("C", "WORK")
        while True:
            with contextlib.suppress(TimeoutError):
                for message in await work.fetch(20, timeout=1):
                    sequence = message.metadata.sequence.stream
                    self.seen.setdefault(message.data.decode(), set()).add(sequence)
                    await message.ack()

    async def live(self, server: ProcessTarget, chance: random.Random) -> None:
        """Publish and consume until the server is killed at a random moment."""
        nc = await connect(server)
        tasks = [asyncio.create_task(self.publish(nc, chance)) for _ in range(4)]
        tasks.append(asyncio.create_task(self.consume(nc)))
        await asyncio.sleep(chance.uniform(0.3, 1.0))
        kill(server)
        for task in tasks:
            task.cancel()
            with contextlib.suppress(*GONE):
                await task
        with contextlib.suppress(*GONE):
            await nc.close()

    async def finish(self, server: ProcessTarget) -> None:
        """Check that all acknowledged messages come."""
        nc = await connect(server)
        task = asyncio.create_task(self.consume(nc))
        with contextlib.suppress(AssertionError):  # the caller reports missing messages
            await eventually_within(lambda: self.acknowledged <= self.seen.keys(), WAITED_S)
        task.cancel()
        with contextlib.suppress(*GONE):
            await task
        await nc.close()


@pytest.mark.timeout(120)
async def test_each_once(tmp_path: Path) -> None:
    """A redelivered message keeps its sequence; a message that was stored twice would have two."""
    chance = random.Random(5)
    history = History()
    server = serve_files(tmp_path)
    nc = await connect(server)
    api = Api(nc)
    await api.create_stream(
        "WORK",
        subjects=["work.>"],
        storage="file",
        retention="workqueue",
        allow_msg_schedules=True,
    )
    # Messages in flight to a client at the kill are redelivered after this ack wait.
    await api.create_consumer("WORK", "C", ack_wait=1_000_000_000)
    await nc.close()
    for _ in range(ROUNDS):
        await history.live(server, chance)
        server = serve_files(tmp_path)
    try:
        await history.finish(server)
    finally:
        kill(server)
    assert history.acknowledged - history.seen.keys() == set()
    assert {name for name, found in history.seen.items() if len(found) > 1} == set()
    assert len(history.acknowledged) > ROUNDS
