"""Long work of the loop's thread, in steps: it yields wherever others may have their turn.

A check or a change of a hundred thousand subjects is one function for whoever may hold the loop
(`at_once`: tools, tests) and for whoever may not (`in_turns`).
"""

import asyncio
from collections.abc import Generator, Sequence
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]

AT_ONCE: Final = 200
"""Subjects looked at in a step: half a millisecond, and five where a table is doubled."""


def at_once(steps: Steps[T]) -> T:
    """All of it, and what comes of it; what it raises is raised."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def in_turns(steps: Steps[T]) -> T:
    """The same, and the loop's other work between steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


def slices(items: Sequence[T]) -> Generator[Sequence[T], None, None]:
    """The items, AT_ONCE at a time."""
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]
