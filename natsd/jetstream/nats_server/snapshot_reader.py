"""A snapshot that nats-server made, received in parts, as the stream of natsd that it becomes.

    parts ─▶ S2 frames ─▶ tar file ─▶ <directory>/<stream>/meta.inf, msgs/…, obs/… ─▶ copy_stream

Promise
- No input is trusted: only files that a snapshot has are written, under their own names, each of
  them whole in memory once and no longer than BLOCK_BYTES_MAX.
- The stream is taken as a whole, or refused with the first thing that is damaged or cannot be
  taken. Records that a crash of nats-server left half written are no damage.

Source: nats-server's `streamSnapshot`; POSIX's pax format.
"""

import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from natsd.jetstream.names import NAME_BYTES_MAX, byte_length, is_valid_asset_name
from natsd.jetstream.nats_server.stream_import import FoundStream, copy_stream, read_stream
from natsd.jetstream.nats_server.survey import Survey, survey
from natsd.jetstream.snapshot.builder import StreamBuilder
from natsd.jetstream.snapshot.offline import NotPossible
from natsd.store.commit.volume import Volume
from natsd.store.errors import DamagedEncoding
from natsd.store.nats_server.blocks import unpack_frames
from natsd.store.nats_server.encryption import Encryption
from natsd.store.nats_server.stream_files import BLOCK_BYTES_MAX, META, StreamFiles, Unusable

FILES_MAX: Final = 1_000_000
UNPACKED_AT_ONCE: Final = 4 << 20
_FILE: Final = re.compile(
    r"(obs/(?!\.\.?/)[^/\0]{1,255}/)?meta\.(inf|sum)|obs/(?!\.\.?/)[^/\0]{1,255}/o\.dat"
    r"|msgs/([0-9]{1,10}\.blk|index\.db)"
)
_FAILED: Final = "errors.txt"
"""The file with the reason, if nats-server could not complete its snapshot."""
_FRAME_HEADER_BYTES: Final = 4
_FRAME_BYTES_MAX: Final = 5 << 20
_TAR_BYTES: Final = 512
_PAX_BYTES_MAX: Final = 64 << 10
_PAX_RECORD: Final = re.compile(rb"[0-9]+ ([^=\n]+)=([^\n]*)\n")


class NatsServerSnapshot:
    """A snapshot: `take` for each part, then `build` or `files`, and `remove` in any case.

    `directory` must not exist.
    """

    def __init__(self, volume: Volume, directory: Path) -> None:
        self._volume = volume
        self._directory = directory
        self._received = directory / ".received"
        self._frames = bytearray()
        self._tar = TarReader()
        self._longest = 0
        self._count = 0
        self._written_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that the next step needs at most; building a stream takes two blocks."""
        return max(len(self._frames) + self._tar.pending_bytes, 2 * self._longest)

    @property
    def stored_bytes(self) -> int:
        """Bytes of messages that there may be: half of the files may be of removed ones."""
        return self._written_bytes // 2

    async def take(self, part: bytes, check: Callable[[], None]) -> None:
        """Take the next bytes; `check` is called whenever more is held or stored.

        Raises DamagedEncoding, OSError, and what `check` raises.
        """
        self._frames += part
        while await self._volume.read(self._unpack):
            check()
        check()

    async def build(self, builder: StreamBuilder, check: Callable[[], None]) -> None:
        """Build the stream, except for its end (`StreamBuilder.finish`).

        Raises DamagedEncoding, ApiError, StoreError, OSError, and what `check` raises.
        """
        files = self.files()
        try:
            found, surveyed = await self._volume.read(_survey, files)
            self._refuse(surveyed.damage + found.not_taken)
            await copy_stream(builder, self._volume, files, found, surveyed, lambda _: check())
        except (NotPossible, Unusable) as error:
            self._refuse([str(error)])
        self._refuse(found.not_taken)

    def files(self) -> StreamFiles:
        """Return the stream's files, after the last part. Raises DamagedEncoding, OSError."""
        if self._frames or not self._tar.is_ended:
            raise DamagedEncoding("the snapshot is not whole")
        try:
            name = msgspec.json.decode((self._received / META).read_bytes(), type=_Named).name
        except (FileNotFoundError, msgspec.MsgspecError):
            name = ""
        if not is_valid_asset_name(name) or byte_length(name) > NAME_BYTES_MAX:
            raise DamagedEncoding(f"the snapshot is damaged: {META} names no stream")
        directory = self._directory / name
        self._received.rename(directory)
        return StreamFiles(directory, Encryption("", ()))

    async def remove(self) -> None:
        """Remove the received files. Raises OSError."""
        await self._volume.remove_tree(self._directory)

    def _refuse(self, lines: list[str]) -> None:
        """Raise DamagedEncoding with the first line, if there is one."""
        for line in lines:
            raise DamagedEncoding(line.replace(f"{self._directory}/", ""))

    # Functions that run in threads

    def _unpack(self) -> bool:
        """Write the files that come with the next frames; return whether there are more frames."""
        unpacked = 0
        while unpacked < UNPACKED_AT_ONCE:
            frame = self._next_frame()
            if not frame:
                return False
            content, damaged = unpack_frames(frame)
            if damaged:
                raise DamagedEncoding("the snapshot is damaged: a frame does not verify")
            unpacked += len(content)
            for name, body in self._tar.feed(content):
                self._write(name, body)
        return True

    def _next_frame(self) -> bytes:
        """Remove the next frame and return it; empty if it is not whole."""
        frames = self._frames
        if len(frames) < _FRAME_HEADER_BYTES:
            return b""
        length = _FRAME_HEADER_BYTES + int.from_bytes(frames[1:_FRAME_HEADER_BYTES], "little")
        if length > _FRAME_BYTES_MAX:
            raise DamagedEncoding("the snapshot is damaged: no frame where one should be")
        if len(frames) < length:
            return b""
        frame = bytes(frames[:length])
        del frames[:length]
        return frame

    def _write(self, name: str, body: bytes) -> None:
        if name == _FAILED:
            reason = body[:1000].decode(errors="replace")
            raise DamagedEncoding(f"nats-server could not complete the snapshot: {reason!r}")
        path = self._received / name
        if not _FILE.fullmatch(name) or path.exists():
            raise DamagedEncoding(f"the snapshot holds {name[:300]!r}, which is not known here")
        self._count += 1
        if self._count > FILES_MAX:
            raise DamagedEncoding(f"the snapshot holds more than {FILES_MAX} files")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(body)
        self._longest = max(self._longest, len(body))
        self._written_bytes += len(body)


class _Named(msgspec.Struct):
    name: str


def _survey(files: StreamFiles) -> tuple[FoundStream, Survey]:
    return read_stream(files), survey(files, lambda _: None)


class TarReader:
    """Reader of the plain files in a tar file that arrives in parts, cut at any byte."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._pax: dict[bytes, bytes] = {}  # what the next header is told by the one before
        self.is_ended = False

    @property
    def pending_bytes(self) -> int:
        """Bytes of the file that has not come completely."""
        return len(self._pending)

    def feed(self, part: bytes) -> Iterator[tuple[str, bytes]]:
        """Yield the names and contents of the files that this part completes.

        What follows the end is ignored. Raises DamagedEncoding.
        """
        if self.is_ended:
            return
        self._pending += part
        while len(self._pending) >= _TAR_BYTES:
            if not any(self._pending[:_TAR_BYTES]):
                self.is_ended = True
                self._pending.clear()
                return
            info = self._header()
            end = _TAR_BYTES + info.size + -info.size % _TAR_BYTES
            if len(self._pending) < end:
                return
            body = bytes(self._pending[_TAR_BYTES : _TAR_BYTES + info.size])
            del self._pending[:end]
            if info.type == tarfile.XHDTYPE:
                self._pax = dict(_PAX_RECORD.findall(body))
            else:
                self._pax = {}
                yield info.name, body

    def _header(self) -> tarfile.TarInfo:
        try:
            info = tarfile.TarInfo.frombuf(bytes(self._pending[:_TAR_BYTES]), "utf-8", "strict")
            info.name = self._pax.get(b"path", info.name.encode()).decode()
            info.size = int(self._pax.get(b"size", info.size))
        except (tarfile.HeaderError, UnicodeDecodeError, ValueError) as error:
            raise DamagedEncoding(f"the snapshot is damaged: {error}") from None
        is_pax = info.type == tarfile.XHDTYPE
        if not (is_pax or info.isreg()) or not (
            0 <= info.size <= (_PAX_BYTES_MAX if is_pax else BLOCK_BYTES_MAX)
        ):
            raise DamagedEncoding(f"the snapshot is damaged: {info.name[:300]!r} is no file of one")
        return info
