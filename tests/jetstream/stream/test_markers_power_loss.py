"""The power fails while expired messages are replaced by markers (docs/store.md).

For each subject the message or the marker is there, at whatever moment the power fails.
"""

from __future__ import annotations

import asyncio
import logging

import pytest

from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.stream.stream import Stream
from tests.jetstream.clock import SECOND_NS, Clock
from tests.jetstream.power import ROOT, run_until_off
from tests.jetstream.serving import DEADLINE_S, account_of, create, publish, serving
from tests.store.crash import TORTURE
from tests.store.faulty_disk import FaultyDisk

CALLS = range(90, 99)
"""Calls of the disk around those that make the markers durable, the program's last ones."""
SUBJECTS = 8
LIFETIME = b"NATS/1.0\r\nNats-TTL: 5\r\n\r\n"


class Program:
    """A program that publishes to many subjects, and lets all messages expire."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.stored: set[str] = set()

    async def run(self, jetstream: JetStream) -> None:
        stream = await create(
            jetstream, "S", subjects=["s.*"], subject_delete_marker_ttl=3600 * SECOND_NS
        )
        for number in range(2 * SUBJECTS):
            subject = f"s.{number % SUBJECTS}"
            if "error" not in await publish(jetstream, subject, b"x", LIFETIME):
                self.stored.add(subject)
        self.clock.now_ns += 3605 * SECOND_NS
        last = 3 * SUBJECTS
        while stream.readers.visible < last:
            jetstream.scheduler._timer_over()  # type: ignore[attr-defined]  # the loop's timer
            await asyncio.sleep(0)


@pytest.mark.parametrize("number", CALLS)
@pytest.mark.parametrize("seed", range(4 * TORTURE))
def test_a_message_or_its_marker(number: int, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    disk, program = FaultyDisk(seed=seed), Program()
    disk.power_fails_at = number
    with caplog.at_level(logging.CRITICAL):  # losses are logged as failures
        asyncio.run(run_until_off(disk, program, program.clock))
    assert len(program.stored) == SUBJECTS
    asyncio.run(look(disk.crash(seed=seed), program))


async def look(disk: FaultyDisk, program: Program) -> None:
    """Check at the old time, at which nothing expires, and again when everything has expired."""
    program.clock.now_ns = Clock().now_ns
    async with serving(ROOT, disk=disk, clock=program.clock) as jetstream:
        stream = account_of(jetstream).stream("S")
        found = await stream.store.subject_totals("s.*")
        assert set(found) == program.stored
        program.clock.now_ns += 3605 * SECOND_NS
        async with asyncio.timeout(DEADLINE_S):
            while not all([await is_marked(stream, subject) for subject in found]):
                jetstream.scheduler._timer_over()  # type: ignore[attr-defined]  # the loop's timer
                await asyncio.sleep(0)


async def is_marked(stream: Stream, subject: str) -> bool:
    last = await stream.store.load_last(subject)
    return b"Nats-Marker-Reason" in (last.headers or b"")
