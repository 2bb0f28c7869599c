"""A stream's record as the bytes of a snapshot, in parts: what `STREAM.RESTORE` takes.

Every piece is verified when it is read; the checksums of the snapshot are computed anew.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import msgspec

from natsd.backup.directory import BackupDirectory
from natsd.backup.errors import BackupError
from natsd.backup.manifest import Body, Kind, StreamRecord
from natsd.jetstream.snapshot.contents import META
from natsd.store.backup.snapshot_file import SnapshotWriter


def compose(directory: BackupDirectory, record: StreamRecord) -> Iterator[bytes]:
    """Yield the snapshot of a stream, in parts of a few MiB. Raises DamagedPiece or OSError."""
    if record.kind is Kind.FOREIGN:
        for entry in record.entries:
            yield directory.body(entry.body)
        return
    writer = SnapshotWriter()
    yield writer.begin()
    for entry in record.entries:
        yield writer.entry(entry.name, directory.body(entry.body))
    yield writer.end()


def renamed(directory: BackupDirectory, record: StreamRecord, name: str) -> StreamRecord:
    """Return the record of the same stream with another name. Raises BackupError."""
    if record.kind is Kind.FOREIGN:
        raise BackupError("a snapshot of nats-server can be restored under its own name only")
    config = {**json.loads(record.config), "name": name}
    entries = []
    for entry in record.entries:
        if entry.name == META:
            asset = {**json.loads(directory.body(entry.body)), "config": config}
            entry = msgspec.structs.replace(entry, body=Body(json.dumps(asset).encode()))
        entries.append(entry)
    return StreamRecord(record.kind, json.dumps(config).encode(), record.state, tuple(entries))


class ComposedSnapshot(io.RawIOBase):
    """The snapshot of a stream as a file that is read once, from its beginning to its end.

    A seek to the end returns `size`, an estimate for progress bars.
    """

    def __init__(self, parts: Iterator[bytes], size: int) -> None:
        super().__init__()
        self._parts = parts
        self._size = size
        self._rest = memoryview(b"")
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True, for `seek`."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any buffer
        """Read the next bytes into the buffer and return their number; 0: the end."""
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest = memoryview(part)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        self._at += count
        return count

    def seek(self, _offset: int, whence: int = io.SEEK_SET) -> int:
        """Return the estimated size for a seek to the end; nothing else is done."""
        return self._size if whence == io.SEEK_END else 0

    def tell(self) -> int:
        """Return the number of bytes that were read."""
        return self._at
