"""Long work on the event loop's thread, split into steps.

A generator yields after each step. A function over a hundred thousand subjects is written once:
`at_once` runs it without a pause (tools, tests), `run_cooperatively` lets the loop's other work run
between steps.
"""

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]

AT_ONCE: Final = 200
"""Items per step: they take half a millisecond, and 5 ms if a hash table is doubled meanwhile."""
TURN_NS: Final = 1_000_000
"""Time in ns after which a task lets the loop's other work run."""


def at_once(steps: Steps[T]) -> T:
    """Run all steps without a pause and return their result; their exceptions are raised."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def run_cooperatively(steps: Steps[T]) -> T:
    """Run all steps and return their result; let the loop's other work run every TURN_NS."""
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
    """Yield the items in slices of AT_ONCE."""
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]


def is_each(items: Sequence[T], holds: Callable[[T], bool]) -> Steps[bool]:
    """Return, in steps, whether `holds` is true for every item."""
    for some in slices(items):
        if not all(map(holds, some)):
            return False
        yield
    return True


class Breaks:
    """Pauses of a loop over many awaits that complete at once and so never yield to the event loop.

    The loop calls `take` in each round.
    """

    def __init__(self) -> None:
        self._began_ns = time.monotonic_ns()

    async def take(self) -> None:
        """Let the event loop's other work run if TURN_NS have passed since the last pause."""
        if time.monotonic_ns() - self._began_ns >= TURN_NS:
            await asyncio.sleep(0)
            self._began_ns = time.monotonic_ns()
