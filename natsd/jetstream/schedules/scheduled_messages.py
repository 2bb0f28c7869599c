"""What a stream that allows schedules has besides its messages: when they fire, and what waits.

    <account>/streams/<stream>/  schedules.db   schedules_file.py
                                 delayed/       delays.py

Promise
- `begin` before the stream receives, `close` or `destroy` once at its end.
- `schedules.db` is written when a stream is closed; encrypted where there is a key.
"""

from typing import TYPE_CHECKING, Self

from natsd.core.subject import InvalidSubject
from natsd.jetstream.schedules.delays import Delays
from natsd.jetstream.schedules.schedules import Schedules
from natsd.jetstream.schedules.schedules_file import (
    KnownSchedules,
    leave_schedules,
    read_schedules,
)
from natsd.jetstream.steps import in_turns
from natsd.jetstream.stream.storage import open_delayed_store

if TYPE_CHECKING:
    from natsd.jetstream.stream.stream import Stream


class ScheduledMessages:
    """Made by `open`."""

    def __init__(self, stream: "Stream", delays: Delays, known: KnownSchedules) -> None:
        self._jetstream = stream.jetstream
        self._stream = stream
        self._known = known
        self.schedules = Schedules(stream.core, stream.ingest)
        self.delays = delays
        stream.ingest.scheduled.schedules = self.schedules
        stream.ingest.scheduled.delays = delays

    @classmethod
    async def open(cls, stream: "Stream") -> Self:
        """Of a stream whose messages are there. Raises StoreError, OSError."""
        volume = stream.jetstream.volume
        store = await open_delayed_store(stream.account, stream.config)
        usage = stream.account.tiers.of(stream.config.num_replicas).usage
        delays = Delays(stream.core, stream.ingest, store, usage)
        now_ns = stream.jetstream.scheduler.now_ns()
        known = KnownSchedules()
        try:
            await delays.prepare(now_ns - stream.config.duplicate_window)
            if stream.is_filed:
                known = await volume.read(read_schedules, stream.jetstream.vault, stream.directory)
        except BaseException:
            await delays.close()
            raise
        return cls(stream, delays, known)

    def begin(self) -> None:
        """Fire and publish what is due, from now on."""
        self.schedules.begin(self._known)
        self._known = KnownSchedules()
        self.delays.begin()

    async def close(self) -> None:
        """Nothing happens any more; what is known is on disk. Raises StoreError, OSError."""
        await self.delays.close()
        if self.schedules.close() and self._stream.is_filed:
            body = await in_turns(self.schedules.encode())
            jetstream, directory = self._jetstream, self._stream.directory
            await jetstream.volume.read(leave_schedules, jetstream.vault, directory, body)

    async def abandon(self) -> None:
        """Nothing happens any more, and nothing waits; the stream's files are removed."""
        self.schedules.close()
        await self.delays.abandon()

    async def purge(self, pattern: str) -> int:
        """Take back what waits to be published to subjects that match; empty: all of it."""
        try:
            return await self.delays.purge(pattern)
        except InvalidSubject:
            return 0
