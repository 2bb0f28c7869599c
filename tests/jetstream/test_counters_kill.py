"""kill -9 of the server under increments of counters: each acknowledged one counts once (ADR-49).

A publisher without an answer publishes again with the same message id, so that in the end the total
is the sum of all its increments. `make torture` runs tens of rounds.
"""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest

from tests.clients.target import GO_SERVER
from tests.jetstream.behaviour.api import SECOND, Api
from tests.jetstream.serve import connect, kill, kill_soon, load_until_gone, serve_files
from tests.store.crash import TORTURE

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(bool(GO_SERVER), reason="nats-server does not sync by default"),
]

ROUNDS = 2
PUBLISHERS = 3


class Adder:
    """One publisher and its increments; the last one may be unacknowledged."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.chance = chance
        self.number = 0
        self.change = 0
        self.totals = {"c.a": 0, "c.b": 0}
        self.subject = "c.a"

    def draw(self) -> None:
        self.number += 1
        self.change = self.chance.randint(-(10**25), 10**25)
        self.subject = self.chance.choice(sorted(self.totals))

    async def run(self, api: Api) -> None:
        """Publish increments until the server is gone."""
        while True:
            if not self.change:
                self.draw()
            await self.add(api)

    async def add(self, api: Api) -> None:
        ack = await api.publish(
            self.subject,
            Nats_Incr=str(self.change),
            Nats_Msg_Id=f"{self.name}-{self.number}",
        )
        assert "error" not in ack, ack
        self.totals[self.subject] += self.change
        self.change = 0


async def test_each_increment_counts_once(tmp_path: Path) -> None:
    chance = random.Random(5)
    adders = [Adder(f"p{number}", chance) for number in range(PUBLISHERS)]
    for number in range(ROUNDS * TORTURE):
        server = await asyncio.to_thread(serve_files, tmp_path)
        client = await connect(server)
        if number == 0:
            await Api(client).create_stream(
                "C",
                subjects=["c.*"],
                storage="file",
                allow_msg_counter=True,
                duplicate_window=3600 * SECOND,
            )
        killer = asyncio.ensure_future(kill_soon(server, 0.05 + chance.random() * 0.3))
        await load_until_gone(server, [adder.run for adder in adders])
        await killer
        await client.close()
    server = await asyncio.to_thread(serve_files, tmp_path)
    client = await connect(server)
    for adder in adders:
        if adder.change:
            await adder.add(Api(client))
    for subject in ("c.a", "c.b"):
        last = await client.jetstream().get_last_msg("C", subject)
        assert last.data is not None
        expected = sum(adder.totals[subject] for adder in adders)
        assert int(json.loads(last.data)["val"]) == expected
    await client.close()
    await asyncio.to_thread(kill, server)
