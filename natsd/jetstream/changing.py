"""One change at a time of each asset: the others wait, in the order in which they came."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Changing:
    """`async with changing("ORDERS"): …`; a name that nobody changes costs nothing."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def __call__(self, name: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault(name, asyncio.Lock())
        self._users[name] = self._users.get(name, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._locks[name]
