"""Requests about a stream that nobody leads at the moment, because it is elected or moved.

Each of the stream's servers holds them for a while; the one that leads then answers.
"""

import asyncio
from collections.abc import Callable
from typing import Final

HELD_S: Final = 3.0
STEP_S: Final = 0.05
HELD_MAX: Final = 1024


class HeldRequests:
    """The requests that wait on this server: at most HELD_MAX, each for at most HELD_S."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._count = 0

    def hold(self, is_decided: Callable[[], bool]) -> None:
        """Ask again and again whether it is known who answers; too many requests are dropped."""
        if self._count < HELD_MAX:
            self._count += 1
            self._ask(is_decided, self._loop.time() + HELD_S)

    def _ask(self, is_decided: Callable[[], bool], until_s: float) -> None:
        if is_decided() or self._loop.time() > until_s:
            self._count -= 1
        else:
            self._loop.call_later(STEP_S, self._ask, is_decided, until_s)
