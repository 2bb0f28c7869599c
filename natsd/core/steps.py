"""Long work of the loop's thread, in steps: it yields wherever others may have their turn.

A check or a change of a hundred thousand subjects is one function for whoever may hold the loop
(`at_once`: tools, tests) and for whoever may not (`in_turns`).
"""

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]

AT_ONCE: Final = 200
"""Subjects looked at in a step: half a millisecond, and five where a table is doubled."""
TURN_NS: Final = 1_000_000


def at_once(steps: Steps[T]) -> T:
    """All of it, and what comes of it; what it raises is raised."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def in_turns(steps: Steps[T]) -> T:
    """The same, and the loop's other work wherever the steps so far took TURN_NS."""
    began_ns = time.monotonic_ns()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        if time.monotonic_ns() - began_ns >= TURN_NS:
            await asyncio.sleep(0)
            began_ns = time.monotonic_ns()


def slices(items: Sequence[T]) -> Generator[Sequence[T], None, None]:
    """The items, AT_ONCE at a time."""
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]


def is_each(items: Sequence[T], holds: Callable[[T], bool]) -> Steps[bool]:
    """Whether it holds for all of them."""
    for some in slices(items):
        if not all(map(holds, some)):
            return False
        yield
    return True


class Breaks:
    """Where a loop over very many awaits that need not wait lets others have their turn."""

    def __init__(self) -> None:
        self._began_ns = time.monotonic_ns()

    async def take(self) -> None:
        """Let them, if the loop went on for TURN_NS."""
        if time.monotonic_ns() - self._began_ns >= TURN_NS:
            await asyncio.sleep(0)
            self._began_ns = time.monotonic_ns()
