"""Waiting with a deadline for the effects of another task, thread or process."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

POLL_S = 0.005
DEADLINE_S = 20.0


class Eventually(Protocol):
    def __call__(
        self, condition: Callable[[], object], deadline_s: float = DEADLINE_S
    ) -> Awaitable[None]: ...


async def eventually_within(
    condition: Callable[[], object], deadline_s: float = DEADLINE_S
) -> None:
    """Return as soon as the condition holds; fail if it does not hold within the deadline."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + deadline_s
    while not condition():
        assert loop.time() < give_up_at, f"still false after {deadline_s} s: {condition}"
        await asyncio.sleep(POLL_S)
