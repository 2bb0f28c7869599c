"""The logins whose verdict is awaited: an auth callout, a JWT resolver, a bcrypt hash.

While a verdict is awaited, nothing is read from the connection: what follows CONNECT waits in its
buffer and in the system's. The authentication timeout runs meanwhile. A connection that closes
cancels its awaitable.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any


class PendingLogins:
    """The logins of one server that are awaited: one task for each such connection."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, login: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a login in a task."""
        task = asyncio.get_running_loop().create_task(login, name="natsd-login")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Cancel all logins, and return when their tasks have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
