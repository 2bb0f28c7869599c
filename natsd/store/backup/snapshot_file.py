"""The format of a stream's snapshot: named entries in order, each whole or refused.

    snapshot   snappy frames (snappy_frames.py) around a tar file (ustar)
    tar       natsd                the first entry; it names the format: {"version": 1}
              …                    the entries of the snapshot
              end                  the last entry; it is empty
    entry     512 bytes of header │ body │ checksum u64 │ zeros to a multiple of 512
    checksum  XXH64 of the body, seeded with the XXH64 of the name and a zero byte, which in turn is
              seeded with the checksum of the entry before

Tools that unpack snappy and tar show the entries, each with its checksum behind the body. Nothing
in a snapshot is encrypted: a user who may take a snapshot may read the stream.

Promise
- A reader returns an entry only once the whole entry has come and its checksum verifies, together
  with all entries before it.
- `finish` fails unless the end entry has come and nothing follows it.
- One entry at a time is in memory, as a whole; an entry is at most ENTRY_BYTES_MAX long.
- A snapshot that nats-server made raises another error than a damaged one.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

from natsd.store.backup.snappy_frames import FramePacker, FrameUnpacker
from natsd.store.codec.records import checksum
from natsd.store.errors import DamagedEncoding

VERSION_ENTRY: Final = "natsd"
VERSION_BODY: Final = b'{"version":1}'
END_ENTRY: Final = "end"
ENTRY_BYTES_MAX: Final = 128 << 20  # far above a block with the longest message
CHECKSUM: Final = Struct("<Q")
_TAR_BYTES: Final = 512
_MODE: Final = 0o600


class SnapshotWriter:
    """Writer of one snapshot, entry by entry.

    The calls may compress many bytes, so each may take a while. They must come from one thread at a
    time.
    """

    def __init__(self) -> None:
        self._frames = FramePacker()
        self._chain = 0

    def begin(self) -> bytes:
        """Return the first bytes of a snapshot."""
        return self._frames.begin() + self.entry(VERSION_ENTRY, VERSION_BODY)

    def entry(self, name: str, body: bytes) -> bytes:
        """Return the bytes of the next entry."""
        return self.packing(name, body)()

    def packing(self, name: str, body: bytes) -> Callable[[], bytes]:
        """Return a function that compresses the next entry and returns its bytes.

        The function may run in any thread; the following entries may be started before it has run.
        """
        assert len(body) <= ENTRY_BYTES_MAX
        return self._frames.packing(*self._tar_entry(name, body))

    def end(self) -> bytes:
        """Return the last bytes of a snapshot."""
        return self._frames.packing(*self._tar_entry(END_ENTRY, b""), bytes(2 * _TAR_BYTES))()

    def _tar_entry(self, name: str, body: bytes) -> tuple[bytes, bytes, bytes]:
        """Return the bytes before the body, the body (not copied) and the bytes behind it."""
        self._chain = _checksum(name, body, self._chain)
        info = tarfile.TarInfo(name)
        info.size = len(body) + CHECKSUM.size
        info.mode = _MODE
        behind = CHECKSUM.pack(self._chain) + bytes(-info.size % _TAR_BYTES)
        return info.tobuf(tarfile.USTAR_FORMAT), body, behind


class SnapshotReader:
    """Reader of a snapshot that arrives in parts, cut at any byte."""

    def __init__(self) -> None:
        self._frames = FrameUnpacker()
        self._pending = bytearray()
        self._chain = 0
        self._is_opened = False
        self.is_ended = False

    def feed(self, part: bytes) -> list[tuple[str, bytes]]:
        """Return the names and bodies of the entries that this part completes.

        May take a while. Raises DamagedEncoding, or ForeignSnapshot if nats-server made it.
        """
        return self.take(self._frames.feed(part))

    def take(self, unpacked: bytes) -> list[tuple[str, bytes]]:
        """Return the completed entries as `feed` does, but take bytes that are unpacked already."""
        self._pending += unpacked
        return list(self._entries())

    @property
    def is_between_entries(self) -> bool:
        """Whether no part of an entry waits for the rest of it."""
        return not self._pending

    @property
    def unread(self) -> bytes:
        """What `feed` got and could not read: all of it after a ForeignSnapshot."""
        return self._frames.pending

    @property
    def pending_bytes(self) -> int:
        """Bytes of the entry that has not come completely."""
        return len(self._pending)

    def finish(self) -> None:
        """Check that the snapshot is complete; raise DamagedEncoding if it is not."""
        if not self._frames.is_between_frames:
            raise DamagedEncoding("the snapshot is not whole")
        self.finish_entries()

    def finish_entries(self) -> None:
        """Check what `finish` checks, for a caller that unpacks the snappy frames itself."""
        if not self.is_ended or any(self._pending):
            raise DamagedEncoding("the snapshot is not whole")

    def _entries(self) -> Iterator[tuple[str, bytes]]:
        while not self.is_ended and (entry := self._next()) is not None:
            name, body = entry
            if not self._is_opened:
                _check_version(name, body)
                self._is_opened = True
            elif name == END_ENTRY:
                self.is_ended = True
            else:
                yield entry

    def _next(self) -> tuple[str, bytes] | None:
        pending = self._pending
        if len(pending) < _TAR_BYTES:
            return None
        info = _header(bytes(pending[:_TAR_BYTES]))
        if not self._is_opened and info.name != VERSION_ENTRY:
            raise DamagedEncoding("this is no snapshot of a stream")
        if not info.isreg() or not CHECKSUM.size <= info.size <= ENTRY_BYTES_MAX + CHECKSUM.size:
            raise DamagedEncoding(f"the snapshot is damaged: {info.name!r} is no entry of one")
        end = _TAR_BYTES + info.size + -info.size % _TAR_BYTES
        if len(pending) < end:
            return None
        body = bytes(pending[_TAR_BYTES : _TAR_BYTES + info.size - CHECKSUM.size])
        (written,) = CHECKSUM.unpack_from(pending, _TAR_BYTES + len(body))
        self._chain = _checksum(info.name, body, self._chain)
        if written != self._chain:
            raise DamagedEncoding(f"the snapshot is damaged: {info.name!r} does not verify")
        del pending[:end]
        return info.name, body


def _header(data: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(data, "utf-8", "strict")
    except (tarfile.HeaderError, UnicodeDecodeError) as error:
        raise DamagedEncoding(f"the snapshot is damaged: {error}") from None


def _check_version(name: str, body: bytes) -> None:
    if name != VERSION_ENTRY or body != VERSION_BODY:
        raise DamagedEncoding("the snapshot is of a version that is not known here")


def _checksum(name: str, body: bytes, seed: int) -> int:
    return checksum(body, checksum(name.encode() + b"\0", seed))
