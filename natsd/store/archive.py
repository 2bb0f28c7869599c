"""An archive of a stream: named entries in order, whole or refused.

    archive   snappy frames (snappy_frames.py) of a tar file (ustar)
    tar       natsd                {"version": 1}: what the archive is; first
              …                    whatever is archived
              end                  nothing: last
    entry     512 bytes of header │ body │ checksum u64 │ zeros to a multiple of 512
    checksum  XXH64 of the body; its seed is the XXH64 of the name and a zero, whose seed in turn is
              the checksum of the entry before

What unpacks tar files and snappy shows the entries, each with its checksum behind it. Nothing in an
archive is encrypted: who may take one may read the stream.

Promise
- A reader gives an entry only once all of it has come and verifies, with all that came before it.
- `finish` fails unless the end has come and nothing behind it.
- An entry is in memory as a whole, one at a time, and is ENTRY_BYTES_MAX long at most.
- An archive that nats-server made is told from one that is damaged.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

from natsd.store.errors import DamagedEncoding, ForeignArchive
from natsd.store.record import checksum
from natsd.store.snappy_frames import FramePacker, FrameUnpacker

VERSION_ENTRY: Final = "natsd"
VERSION_BODY: Final = b'{"version":1}'
END_ENTRY: Final = "end"
ENTRY_BYTES_MAX: Final = 128 << 20  # a block and the longest message, with much to spare
CHECKSUM: Final = Struct("<Q")
_TAR_BYTES: Final = 512
_FOREIGN: Final = ("meta.inf", "meta.sum")
_MODE: Final = 0o600


class ArchiveWriter:
    """Writes one archive, entry by entry; its calls may take a while, and come from one thread at
    a time."""

    def __init__(self) -> None:
        self._frames = FramePacker()
        self._chain = 0

    def begin(self) -> bytes:
        """What an archive begins with."""
        return self._frames.begin() + self.entry(VERSION_ENTRY, VERSION_BODY)

    def entry(self, name: str, body: bytes) -> bytes:
        """The next entry."""
        return self.packing(name, body)()

    def packing(self, name: str, body: bytes) -> Callable[[], bytes]:
        """What gives the next entry, in any thread: entries that follow may be begun meanwhile."""
        assert len(body) <= ENTRY_BYTES_MAX
        return self._frames.packing(*self._tar_entry(name, body))

    def end(self) -> bytes:
        """What an archive ends with."""
        return self._frames.packing(*self._tar_entry(END_ENTRY, b""), bytes(2 * _TAR_BYTES))()

    def _tar_entry(self, name: str, body: bytes) -> tuple[bytes, bytes, bytes]:
        """What comes before the body, the body, which is not copied, and what comes behind it."""
        self._chain = _checksum(name, body, self._chain)
        info = tarfile.TarInfo(name)
        info.size = len(body) + CHECKSUM.size
        info.mode = _MODE
        behind = CHECKSUM.pack(self._chain) + bytes(-info.size % _TAR_BYTES)
        return info.tobuf(tarfile.USTAR_FORMAT), body, behind


class ArchiveReader:
    """Reads an archive that comes in parts, cut anywhere."""

    def __init__(self) -> None:
        self._frames = FrameUnpacker()
        self._pending = bytearray()
        self._chain = 0
        self._is_opened = False
        self.is_ended = False

    def feed(self, part: bytes) -> list[tuple[str, bytes]]:
        """Names and bodies of the entries that the next part completes. May take a while.

        Raises DamagedEncoding, and ForeignArchive for what nats-server made.
        """
        return self.take(self._frames.feed(part))

    def take(self, unpacked: bytes) -> list[tuple[str, bytes]]:
        """`feed` for who unpacks the frames."""
        self._pending += unpacked
        return list(self._entries())

    @property
    def is_between_entries(self) -> bool:
        """Nothing of an entry waits for its rest."""
        return not self._pending

    @property
    def pending_bytes(self) -> int:
        """Of the entry that is not whole yet."""
        return len(self._pending)

    def finish(self) -> None:
        """There is no more. Raises DamagedEncoding unless that was a whole archive."""
        if not self._frames.is_between_frames:
            raise DamagedEncoding("the archive is not whole")
        self.finish_entries()

    def finish_entries(self) -> None:
        """`finish` for who unpacks the frames."""
        if not self.is_ended or any(self._pending):
            raise DamagedEncoding("the archive is not whole")

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
            _refuse(info.name)
        if not info.isreg() or not CHECKSUM.size <= info.size <= ENTRY_BYTES_MAX + CHECKSUM.size:
            raise DamagedEncoding(f"the archive is damaged: {info.name!r} is no entry of one")
        end = _TAR_BYTES + info.size + -info.size % _TAR_BYTES
        if len(pending) < end:
            return None
        body = bytes(pending[_TAR_BYTES : _TAR_BYTES + info.size - CHECKSUM.size])
        (written,) = CHECKSUM.unpack_from(pending, _TAR_BYTES + len(body))
        self._chain = _checksum(info.name, body, self._chain)
        if written != self._chain:
            raise DamagedEncoding(f"the archive is damaged: {info.name!r} does not verify")
        del pending[:end]
        return info.name, body


def _header(data: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(data, "utf-8", "strict")
    except (tarfile.HeaderError, UnicodeDecodeError) as error:
        raise DamagedEncoding(f"the archive is damaged: {error}") from None


def _check_version(name: str, body: bytes) -> None:
    if name != VERSION_ENTRY or body != VERSION_BODY:
        raise DamagedEncoding("the archive is of a version that is not known here")


def _refuse(name: str) -> None:
    if name in _FOREIGN:
        raise ForeignArchive
    raise DamagedEncoding("this is no archive of a stream")


def _checksum(name: str, body: bytes, seed: int) -> int:
    return checksum(body, checksum(name.encode() + b"\0", seed))
