"""Long answers in short turns: clients and the event loop are served in between.

- An answer is made by an iterator, whose steps are short. Every `LOOK_NS` the server's clients are
  served if any of them waits; that is cheaper than a round of the loop. If any was served, or after
  `TURN_NS`, the turn ends and the loop's other work runs.
- A turn that does not end an answer lasts until the loop's next round: so twenty long answers at
  once delay clients no longer than one does.
- Scrapes come again and again, so they make way sooner than other long work (steps.py).
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from natsd.core.steps import Steps

LOOK_NS: Final = 15_000
"""Time in ns after which clients that wait are served."""
TURN_NS: Final = 200_000
"""Time in ns after which the loop's other work runs."""
CHUNK_BYTES: Final = 64 * 1024

T = TypeVar("T")


class Turns:
    """The turns that all answers of a server share.

    `serve_clients` serves the clients that wait, and returns whether there were any.
    """

    def __init__(self, serve_clients: Callable[[], bool] = lambda: False) -> None:
        self._serve_clients = serve_clients
        self._turn = asyncio.Lock()
        self._looks_ns = self._ends_ns = 0

    async def run(self, steps: Steps[T]) -> T:
        """Run all steps in turns and return their result; an exception of a step is raised here."""
        while True:
            async with self._turn:
                self._begin()
                try:
                    next(steps)
                    while self._goes_on():
                        next(steps)
                except StopIteration as end:
                    result: T = end.value
                    return result
                await asyncio.sleep(0)

    async def chunk(self, pieces: Iterator[bytes]) -> tuple[bytes, bool]:
        """Return the pieces that one turn makes, joined, and whether they were the last."""
        async with self._turn:
            chunk, is_last = self._next_chunk(pieces)
            if not is_last:
                await asyncio.sleep(0)
            return chunk, is_last

    def _next_chunk(self, pieces: Iterator[bytes]) -> tuple[bytes, bool]:
        self._begin()
        chunk = bytearray()
        for piece in pieces:
            chunk += piece
            if len(chunk) >= CHUNK_BYTES or not self._goes_on():
                return bytes(chunk), False
        return bytes(chunk), True

    def _begin(self) -> None:
        now_ns = time.monotonic_ns()
        self._looks_ns, self._ends_ns = now_ns + LOOK_NS, now_ns + TURN_NS

    def _goes_on(self) -> bool:
        """Return whether the turn goes on after a step; serve clients if it is time to look."""
        now_ns = time.monotonic_ns()
        if now_ns < self._looks_ns:
            return True
        if now_ns >= self._ends_ns or self._serve_clients():
            return False
        self._looks_ns = now_ns + LOOK_NS
        return True
