"""The message ids of one stream: on disk, and for the other replicas.

    a stop, a RAFT snapshot     ids ─▶ duplicates.db (duplicates_file.py)
    a start                     duplicates.db, then the messages that came later
    a replica left behind       ids ─▶ an entry of the stream's image

A publish that comes again within the duplicate window is known by its id, also if its message was
removed since, by a consumer of a work queue for example. So each replica has the ids of removed
messages too: whichever leads next knows them.

Promise
- After a start, a replica has the ids as of its RAFT snapshot, those of the messages that it has,
  and those of the publishes that come again from the RAFT log (`note_removed`).
- At most IDS_KEPT_MAX ids are kept on disk; more are found faster in the messages, and those of
  removed messages are lost in a restart, as on nats-server.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from natsd.core.steps import run_cooperatively
from natsd.jetstream.commands.commands import Publish
from natsd.jetstream.server_resources import ServerResources
from natsd.jetstream.stream.duplicates_file import (
    has_duplicates,
    keep_duplicates,
    read_duplicates,
)
from natsd.jetstream.stream.files import FiledStream
from natsd.jetstream.stream.publishing import Ingest
from natsd.jetstream.stream.state import StreamReaders
from natsd.store.errors import DamagedEncoding
from natsd.store.log_store import LogStore

_logger = logging.getLogger(__name__)

IDS_KEPT_MAX: Final = 100_000


class IdentifyingStream(FiledStream, Protocol):
    """A stream, as far as its message ids need it."""

    ingest: Ingest
    readers: StreamReaders
    store: LogStore
    jetstream: ServerResources


class KnownIds:
    """The ids of one stream's messages, where they leave the memory and come back."""

    def __init__(self, stream: IdentifyingStream) -> None:
        self._stream = stream
        self._removed: list[tuple[int, int, bytes]] = []  # (sequence, time in ns, id)

    @property
    def _is_kept(self) -> bool:
        """Whether all ids are known and loading them is faster than reading the messages."""
        ids = self._stream.ingest.message_ids
        return not ids.is_recollecting and len(ids) <= IDS_KEPT_MAX

    async def recall(self, now_ns: int, encoded: bytes | None = None) -> None:
        """Find the ids of recent publishes; `encoded` are those that another replica sent.

        Raises StoreError, OSError.
        """
        stream = self._stream
        ids = stream.ingest.message_ids
        if stream.is_filed:
            volume = stream.jetstream.volume
            encoded = await volume.read(read_duplicates, stream.jetstream.vault, stream.directory)
        if encoded:
            try:
                await run_cooperatively(ids.restore(encoded, now_ns))
            except DamagedEncoding as error:
                _logger.warning("JetStream: stream %s: %s", stream.name, error)
        await ids.rebuild(now_ns)

    def note_removed(self, command: Publish) -> None:
        """Note the id of a publish that comes again, if its message was removed since."""
        log = self._stream.readers.log
        if command.message_id and not log.has(command.sequence):
            self._removed.append((command.sequence, command.time_ns, command.message_id))

    def complete(self) -> None:
        """Add the ids that were noted, before ids are looked up or encoded."""
        if self._removed:
            noted, self._removed = self._removed, []
            self._stream.ingest.message_ids.merge(noted)

    def encode_few(self) -> bytes:
        """Return the ids in the duplicate window; b"" if reading the messages is as fast."""
        ids = self._stream.ingest.message_ids
        return ids.encode() if len(ids) and self._is_kept else b""

    async def encode_all(self, upto: int) -> bytes:
        """Return the ids of the messages up to that sequence, which are committed."""
        ids = self._stream.ingest.message_ids
        await ids.recollected()
        self.complete()
        return await run_cooperatively(ids.encode_upto(upto)) if len(ids) else b""

    async def keep(self) -> None:
        """Write the committed ids to disk, if not all of their messages are there.

        Raises OSError.
        """
        stream, ids = self._stream, self._stream.ingest.message_ids
        self.complete()
        if not (stream.is_filed and self._is_kept and ids.outlive_messages()):
            return
        upto = min(stream.readers.committed, stream.store.durable_sequence)
        await self._write(await run_cooperatively(ids.encode_upto(upto)))

    def at_close(self) -> Callable[[], Awaitable[None]]:
        """Return what writes the present ids to disk, once the stream's store is closed."""
        self.complete()
        stream, ids = self._stream, self._stream.ingest.message_ids
        is_any = len(ids) > 0
        encoded = ids.encode() if stream.is_filed and self._is_kept else b""

        async def write() -> None:
            if encoded and (is_any or await self._has_file()):
                await self._write(encoded)

        return write

    async def _has_file(self) -> bool:
        stream = self._stream
        volume = stream.jetstream.volume
        return await volume.read(has_duplicates, stream.jetstream.vault, stream.directory)

    async def _write(self, encoded: bytes) -> None:
        stream = self._stream
        volume, vault = stream.jetstream.volume, stream.jetstream.vault
        await volume.read(keep_duplicates, vault, stream.directory, encoded)
