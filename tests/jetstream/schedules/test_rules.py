"""Checks of a schedule: its target must be a subject of the stream, however many there are."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from natsd.jetstream.jetstream import JetStream
from tests.jetstream.serving import create, publish, serving, update

PUBLISHED = 50
SUBJECTS = 30_000
SMALL_CPU_S = 0.1
"""Smaller costs are not compared, because the clock's resolution would decide."""


def headers(target: str) -> bytes:
    return (
        f"NATS/1.0\r\nNats-Schedule: @every 1h\r\nNats-Schedule-Target: {target}\r\n\r\n"
    ).encode()


async def spent_s(jetstream: JetStream, plan: str, target: str) -> float:
    """Publish PUBLISHED schedules and return the CPU time in seconds."""
    began_s = time.process_time()
    for _ in range(PUBLISHED):
        answer = await publish(jetstream, plan, b"", headers(target))
        assert "error" not in answer, answer
    return time.process_time() - began_s


async def test_a_schedule_costs_the_same_among_very_many_subjects(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        few = ["few.plan", "few.target"]
        await create(jetstream, "FEW", subjects=few, storage="memory", allow_msg_schedules=True)
        many = [f"many.{number}" for number in range(SUBJECTS)]
        await create(jetstream, "MANY", subjects=many, storage="memory", allow_msg_schedules=True)
        few_s = await spent_s(jetstream, "few.plan", "few.target")
        many_s = await spent_s(jetstream, "many.0", f"many.{SUBJECTS - 1}")
        assert many_s < max(10 * few_s, SMALL_CPU_S)


@pytest.mark.parametrize("target", ["few.target", "s", "s.2.x", "none"])
async def test_a_target_of_nobody_or_of_another_stream_is_refused(
    tmp_path: Path, target: str
) -> None:
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "FEW", subjects=["few.>"], allow_msg_schedules=True)
        stream = await create(jetstream, "S", subjects=["s.*"], allow_msg_schedules=True)
        assert "error" not in await publish(jetstream, "s.plan", b"", headers("s.target"))
        refused = await publish(jetstream, "s.plan", b"", headers(target))
        assert refused["error"]["err_code"] == 10190
        await update(stream, subjects=["s.*", "t.>"])
        assert "error" not in await publish(jetstream, "s.plan", b"", headers("t.x.y"))
