"""The power fails while streams are created, changed and deleted (docs/store.md).

Answered changes hold, unanswered ones hold or not, and nothing else is lost.
"""

from __future__ import annotations

import asyncio
import logging

import pytest

from natsd.jetstream.jetstream import JetStream
from tests.jetstream.power import ROOT, run_until_off
from tests.jetstream.serving import (
    account_of,
    create,
    publish,
    serving,
    update,
)
from tests.store.crash import TORTURE
from tests.store.faulty_disk import FaultyDisk

LAST_CALL = 130
"""The last call at which the power may fail; the program below makes fewer calls."""
STEP = 5


class Program:
    """A program that creates, changes and deletes streams, and notes the answered changes."""

    def __init__(self) -> None:
        self.answered: dict[str, str | None] = {}
        self.asked: dict[str, str | None] = {}
        self.stored = 0

    async def run(self, jetstream: JetStream) -> None:
        await self.create(jetstream, "A", "one")
        await self.publish(jetstream)
        await self.create(jetstream, "B", "one")
        await self.change(jetstream, "A", "two")
        await self.publish(jetstream)
        await self.delete(jetstream, "B")
        await self.create(jetstream, "B", "again")
        await self.publish(jetstream)

    async def create(self, jetstream: JetStream, name: str, description: str) -> None:
        self.asked[name] = description
        await create(jetstream, name, subjects=[f"{name}.*"], description=description)
        self.answered[name] = description

    async def change(self, jetstream: JetStream, name: str, description: str) -> None:
        self.asked[name] = description
        await update(account_of(jetstream).stream(name), description=description)
        self.answered[name] = description

    async def delete(self, jetstream: JetStream, name: str) -> None:
        self.asked[name] = None
        await account_of(jetstream).delete_stream(name)
        self.answered[name] = None

    async def publish(self, jetstream: JetStream) -> None:
        answer = await publish(jetstream, "A.x", b"x")
        self.stored = answer.get("seq", self.stored)


@pytest.mark.parametrize("number", range(3, LAST_CALL, STEP if TORTURE == 1 else 1))
def test_what_was_answered_holds(number: int, caplog: pytest.LogCaptureFixture) -> None:
    disk, program = FaultyDisk(seed=number), Program()
    disk.power_fails_at = number
    with caplog.at_level(logging.CRITICAL):  # losses are logged as failures
        asyncio.run(run_until_off(disk, program))
    asyncio.run(look(disk.crash(seed=number), program))


async def look(disk: FaultyDisk, program: Program) -> None:
    async with serving(ROOT, disk=disk) as jetstream:
        account = account_of(jetstream)
        assert account.offline == {}
        for name, asked in program.asked.items():
            stream = account.streams.get(name)
            found = None if stream is None else stream.config.description
            assert found in {program.answered.get(name), asked}, name
        if program.stored:
            assert account.stream("A").store.state().last_sequence >= program.stored
        await create(jetstream, "C", subjects=["C"])
        assert "seq" in await publish(jetstream, "C", b"x")
