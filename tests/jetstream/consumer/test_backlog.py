"""num_pending is exact, whatever messages come and go during the count and after it."""

from __future__ import annotations

import asyncio

from hypothesis import example, given, settings
from hypothesis import strategies as st

from natsd.core.routing import matches
from natsd.jetstream.consumer.delivery import PendingCursor
from natsd.store.mem_store import MemStore
from natsd.store.store import Limits

SUBJECTS = [f"s.{at}" for at in range(200)]
SLICE = 300  # budget: some subjects, or some hundred messages


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.integers(0, 199), min_size=1, max_size=400),
    st.integers(1, 400),
    st.lists(st.tuples(st.booleans(), st.integers(0, 10_000)), max_size=60),
    st.sampled_from([("s.*",), ("s.1", "s.2", "s.3"), ("s.7",), ("none", "s.*"), ("x",)]),
    st.booleans(),
)
@example([0, 0, 0, 0, 0], 3, [(False, 0)], ("s.*",), True)  # one goes that lies before the range
def test_while_it_is_counted(
    stored: list[int],
    start: int,
    events: list[tuple[bool, int]],
    filters: tuple[str, ...],
    are_few: bool,
) -> None:
    """Messages come and go between slices, and none is counted twice."""

    async def run() -> None:
        store = MemStore(Limits())
        live: dict[int, str] = {}

        def append(at: int) -> None:
            subject = SUBJECTS[at % (5 if are_few else 200)]
            live[store.append(subject, None, b"", 1)] = subject

        def is_wanted(subject: str) -> bool:
            return any(matches(subject, pattern) for pattern in filters)

        for at in stored:
            append(at)
        cursor = PendingCursor(store.log)
        cursor.begin_at(start, filters)
        counted_at = len(stored)
        is_counted = cursor.count_slice(counted_at, SLICE)
        for is_new, at in events:
            if is_new:
                append(at)
                if is_wanted(SUBJECTS[at % (5 if are_few else 200)]):
                    cursor.tell_appeared(store.log.last_sequence)
            elif live:
                sequence = sorted(live)[at % len(live)]
                if is_wanted(live.pop(sequence)):
                    cursor.tell_vanished(sequence)
                await store.delete(sequence)
            is_counted = is_counted or cursor.count_slice(store.log.last_sequence, SLICE)
        while not is_counted:
            is_counted = cursor.count_slice(store.log.last_sequence, SLICE)
        right = sum(sequence >= start and is_wanted(text) for sequence, text in live.items())
        assert cursor.num_pending(store.log.last_sequence) == right

    asyncio.run(run())
