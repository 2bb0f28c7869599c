"""Failures of sourcing are logged in one line per kind."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from natsd.jetstream.sourcing.troubles import BEGINS_ANEW, CANNOT_BE_FILLED, Troubles
from tests.jetstream.serving import create, serving
from tests.waiting import Eventually

SOURCES = 300


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "stream S" in each.getMessage()]


def count_of(line: str) -> int:
    """Return the number of origins in a line of the log."""
    names, _, more = line.partition(" and ")
    return names.count(",") + 1 + (int(more.split()[0]) if more else 0)


async def test_many_origins_that_are_not_there_are_few_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    caplog.set_level(logging.WARNING)
    async with serving(tmp_path) as jetstream:
        sources = [{"name": f"O{number}"} for number in range(SOURCES)]
        stream = await create(jetstream, "S", sources=sources)
        await eventually(lambda: all(each.error for each in stream.sourcing.sources_info()))
    told = lines(caplog)
    assert sum(count_of(line) for line in told) == SOURCES
    assert len(told) < SOURCES / 5
    assert told[0].startswith("JetStream: stream S cannot be filled from O0, O1, O2 and ")
    assert all(line.endswith(": stream not found") for line in told)


async def test_each_kind_is_told_apart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with serving(tmp_path) as jetstream:
        troubles = Troubles("S", jetstream.scheduler)
        for name in "ABCDE":
            troubles.note(CANNOT_BE_FILLED, name, "stream not found")
        troubles.note(BEGINS_ANEW, "A", "nothing was heard of it")
        troubles.note(BEGINS_ANEW, "A", "too quiet to be told", logging.DEBUG)
        assert lines(caplog) == []
        troubles.tell()
        troubles.tell()
    assert lines(caplog) == [
        "JetStream: stream S cannot be filled from A, B, C and 2 more: stream not found",
        "JetStream: stream S from A: nothing was heard of it",
    ]
