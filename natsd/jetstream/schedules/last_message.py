"""Immediate access to the last message of a subject; if it is not in memory, it is fetched."""

import asyncio
import contextlib

from natsd.store.codec.records import StoredMessage
from natsd.store.errors import StoreError
from natsd.store.log_store import LogStore


class LastMessages:
    """Last messages of one stream's subjects; all appended messages count, durable or not."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._fetching: asyncio.Task[None] | None = None

    def __call__(self, subject: str) -> StoredMessage | None:
        """Return the last message; None: it is being fetched from disk. Raises MessageNotFound."""
        message = self._store.load_last_cached(subject)
        if message is None and (self._fetching is None or self._fetching.done()):
            self._fetching = asyncio.get_running_loop().create_task(self._fetch(subject))
        return message

    async def _fetch(self, subject: str) -> None:
        with contextlib.suppress(StoreError):  # the next try raises the error
            await self._store.load_last(subject)
