"""Searches in a long log for few subjects, for many, and for subjects without a message."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.store.log.message_log import MessageLog, NextMatch
from natsd.store.log.subjects import Filter
from natsd.store.mem_store import MemStore
from natsd.store.store import Limits

LONG = 20_000  # several times the messages that are read before the index is asked
RARE = (3, 4_500, 4_501, 9_999, 15_000, 19_998)


def next_match(log: MessageLog, wanted: Filter, first: int) -> int:
    operation = NextMatch(log, wanted, first)
    while not operation.step(1):
        pass
    return operation.result


@pytest.fixture(scope="module")
def store() -> MemStore:
    store = MemStore(block_bytes=50_000)
    for n in range(1, LONG + 1):
        subject = f"rare.{n % 3}" if n in RARE else f"often.{n % 700}"
        store.append(subject, None, b"", n)
    return store


def test_few_subjects_are_found_wherever_they_are(store: MemStore) -> None:
    wanted = Filter(["rare.*"])
    found = [0]
    while following := next_match(store.log, wanted, found[-1] + 1):
        found.append(following)
    assert tuple(found[1:]) == RARE


@pytest.mark.parametrize("patterns", [["often.*"], ["often.>", "rare.*"], ["none.*"]])
def test_many_subjects_or_none(store: MemStore, patterns: list[str]) -> None:
    wanted = Filter(patterns)
    names = {n: f"rare.{n % 3}" if n in RARE else f"often.{n % 700}" for n in range(1, LONG + 1)}
    matching = [n for n, name in names.items() if wanted.is_match(name)]
    for first in (1, 2, 3, 4_499, 10_000, LONG, LONG + 1):
        expected = next((n for n in matching if n >= first), 0)
        assert next_match(store.log, wanted, first) == expected


def test_a_subject_that_comes_later_or_comes_back_is_found() -> None:
    """A filter learns of a new subject, or of one that gets a message again."""
    log = MemStore().log
    wanted = Filter(["a.*"])
    numbers = itertools.count(1)

    def fill() -> None:
        for _ in range(6_000):
            log.append("b", None, b"", next(numbers))

    log.append("a.1", None, b"", next(numbers))
    fill()
    assert next_match(log, wanted, 2) == 0  # the filter now knows that only a.1 matches
    second = next(numbers)
    log.append("a.2", None, b"", second)
    fill()
    assert next_match(log, wanted, 2) == second
    log.delete(second)
    assert next_match(log, wanted, 2) == 0
    third = next(numbers)
    log.append("a.2", None, b"", third)
    fill()
    assert next_match(log, wanted, 2) == third
    log.clear(third + 10_000)
    log.append("a.3", None, b"", third)
    assert next_match(log, wanted, 2) == log.last_sequence


@settings(max_examples=50, deadline=None)
@given(
    steps=st.lists(st.integers(0, 3), max_size=120),
    removed=st.sets(st.integers(1, 120), max_size=60),
    time_ns=st.integers(-1, 250),
)
async def test_the_first_message_at_or_after_a_time(
    steps: list[int], removed: set[int], time_ns: int
) -> None:
    """The first live message at or after a time is the one that a plain walk finds."""
    store = MemStore(Limits(), block_bytes=400)
    times = list(itertools.accumulate(steps))
    for at in times:
        store.append("a", None, b"", at)
    for sequence in removed & set(range(1, len(times) + 1)):
        await store.delete(sequence)
    expected = next(
        (n for n, at in enumerate(times, 1) if n not in removed and at >= time_ns), len(times) + 1
    )
    assert await store.sequence_at(time_ns) == expected
