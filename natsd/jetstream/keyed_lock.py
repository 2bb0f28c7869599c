"""Locks by name: each asset undergoes one change at a time; the others wait in order of arrival."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class KeyedLock:
    """A lock for each name in use: `async with changing("ORDERS"): …`.

    A name without users takes no memory.
    """

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def __call__(self, name: str) -> AsyncIterator[None]:
        """Hold the lock of this name inside the `async with` block."""
        lock = self._locks.setdefault(name, asyncio.Lock())
        self._users[name] = self._users.get(name, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._locks[name]
