"""Schedules and delayed messages of a stream that allows them.

    <account>/streams/<stream>/  schedules.db   schedules_file.py
                                 purge.db       purge_file.py, while a purge runs
                                 delayed/       delays.py

Promise
- `begin` is called before the stream receives, `close` or `abandon` once at its end.
- A purge removes messages and delayed messages, or is refused and removes nothing; a start
  completes an interrupted one.
- `schedules.db` is written when a stream is closed; it is encrypted if there is a key.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol, Self

from natsd.core.routing import InvalidSubject
from natsd.core.steps import run_cooperatively
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.schedules.delays import Delays
from natsd.jetstream.schedules.purge_file import (
    DecidedPurge,
    leave_purge,
    read_purge,
    remove_purge,
)
from natsd.jetstream.schedules.schedules import Schedules
from natsd.jetstream.schedules.schedules_file import (
    KnownSchedules,
    leave_schedules,
    read_schedules,
)
from natsd.jetstream.stream.files import FiledStream
from natsd.jetstream.stream.publishing import Ingest, Usage
from natsd.jetstream.stream.state import StreamReaders
from natsd.jetstream.stream.storage import open_delayed_store
from natsd.store.errors import StoreFull, StoreReadOnly
from natsd.store.log_store import LogStore

if TYPE_CHECKING:
    from natsd.jetstream.account_resources import AccountResources
    from natsd.jetstream.server_resources import ServerResources

PURGE_TRIES: Final = 10
RETRY_S: Final = 0.5
"""Wait before the purge of delayed messages is retried after the disk was full."""


class SchedulingStream(FiledStream, Protocol):
    """A stream, as far as its schedules and delayed messages need it."""

    config: StreamConfig
    store: LogStore
    readers: StreamReaders
    ingest: Ingest
    jetstream: "ServerResources"

    @property
    def account(self) -> "AccountResources":
        """The account."""

    @property
    def usage(self) -> Usage:
        """What counts the stream's bytes."""


class ScheduledMessages:
    """Schedules and delayed messages of a stream; created by `open`."""

    def __init__(self, stream: SchedulingStream, delays: Delays, known: KnownSchedules) -> None:
        self._jetstream = stream.jetstream
        self._stream = stream
        self._known = known
        self.schedules = Schedules(stream.readers, stream.ingest)
        self.delays: Delays = delays
        stream.ingest.scheduled.schedules = self.schedules
        stream.ingest.scheduled.delays = delays

    @classmethod
    async def open(
        cls, stream: SchedulingStream, store: LogStore | None = None, *, is_led: bool = False
    ) -> Self:
        """Open those of a stream whose messages are recovered. Raises StoreError, OSError.

        `store` has the delayed messages; None: they are in the stream's files, if it has any.
        `is_led`: the stream follows a leader, which decides what is purged.
        """
        volume = stream.jetstream.volume
        store = store or await open_delayed_store(stream.account, stream.config)
        delays = Delays(stream.readers, stream.ingest, store, stream.usage)
        now_ns = stream.jetstream.scheduler.now_ns()
        known = KnownSchedules()
        try:
            await delays.prepare(now_ns - stream.config.duplicate_window, is_led=is_led)
            if is_led:
                await delays.follow()
            if stream.is_filed:
                vault, directory = stream.jetstream.vault, stream.directory
                known = await volume.read(read_schedules, vault, directory)
                decided = await volume.read(read_purge, vault, directory)
                if decided is not None:
                    if not is_led:
                        await _complete(stream, delays, decided)
                    await volume.read(remove_purge, vault, directory)
        except BaseException:
            await delays.close()
            raise
        return cls(stream, delays, known)

    def begin(self) -> None:
        """Start to fire and publish due messages."""
        self.schedules.begin(self._known)
        self._known = KnownSchedules()
        self.delays.begin()

    async def end_leading(self) -> None:
        """Fire and publish nothing more, because another server leads the stream's replicas.

        Schedules are found again when the stream leads again.
        """
        self.schedules.close()
        self.schedules = Schedules(self._stream.readers, self._stream.ingest)
        self._stream.ingest.scheduled.schedules = self.schedules
        await self.delays.stop()

    async def synced(self) -> None:
        """Return once all delayed messages are durable. Raises StoreError."""
        await self.delays.synced()

    async def close(self) -> None:
        """Stop, and write the schedules to disk. Raises StoreError, OSError."""
        await self.delays.close()
        if self.schedules.close() and self._stream.is_filed:
            body = await run_cooperatively(self.schedules.encode())
            jetstream, directory = self._jetstream, self._stream.directory
            await jetstream.volume.read(leave_schedules, jetstream.vault, directory, body)

    async def abandon(self) -> None:
        """Stop, and release all delayed messages; the caller removes the stream's files."""
        self.schedules.close()
        await self.delays.abandon()

    async def purge(self, pattern: str, purge_stream: Callable[[], Awaitable[int]]) -> int:
        """Purge the stream and its delayed messages, and return the number of removed messages.

        Delayed messages are removed if their subject matches; an empty pattern matches all.
        `purge_stream` purges the stream. Raises StoreError, OSError, EncryptionError,
        InvalidSubject.
        """
        await self.delays.found_all()
        if self.delays.write_error is not None:
            raise self.delays.write_error
        if self.delays.is_replicated or not (self._stream.is_filed and len(self.delays)):
            return await purge_stream() + await self._purge_delays(pattern)
        jetstream, directory = self._jetstream, self._stream.directory
        last = self._stream.readers.log.last_sequence
        decided = DecidedPurge(last, self.delays.last_entry, pattern)
        try:
            await jetstream.volume.read(leave_purge, jetstream.vault, directory, decided)
            removed = await purge_stream()
        except StoreReadOnly:  # the stream may be purged or not: the next start completes it
            raise
        except BaseException:
            await jetstream.volume.read(remove_purge, jetstream.vault, directory)
            raise
        removed += await self._purge_delays(pattern)
        with contextlib.suppress(OSError):  # the next start repeats the purge, without effect
            await jetstream.volume.read(remove_purge, jetstream.vault, directory)
        return removed

    async def _purge_delays(self, pattern: str) -> int:
        tries = 0
        while True:
            try:
                return await self.delays.purge(pattern)
            except InvalidSubject:
                return 0
            except StoreFull:  # the stream is purged already, which cannot be undone
                tries += 1
                if tries == PURGE_TRIES:
                    raise
            await asyncio.sleep(RETRY_S)


async def _complete(stream: SchedulingStream, delays: Delays, decided: DecidedPurge) -> None:
    """Complete an interrupted purge. Raises StoreError."""
    upto = decided.last_sequence + 1
    await stream.store.purge(pattern=decided.pattern or None, up_to_sequence=upto)
    await stream.store.synced()
    stream.readers.durable(stream.store.durable_sequence)
    if decided.last_entry:
        await delays.purge(decided.pattern, decided.last_entry)
