"""The files of one stream of nats-server, opened read-only, decrypted and uncompressed.

    <account>/streams/<stream>/  meta.inf  meta.sum  [meta.key]     configuration, and its checksum
        msgs/   1.blk …  [1.key …]  index.db                        messages; what is in the blocks
        obs/<consumer>/  meta.inf  meta.sum  [meta.key]  o.dat      consumers, and their states
        __new_msgs__/   __msgs__/                                   a purge under way

Promise
- No file is written, created or locked.
- A file that cannot be read, opened or verified raises Unusable, whose text is one line with the
  file's path.

Source: nats-server's `newFileStoreWithCreated`, `recoverPartialPurge`, `loadEncryptionForMsgBlock`.
"""

import hashlib
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from natsd.store.consumer.consumer_state import ConsumerState
from natsd.store.errors import DamagedEncoding
from natsd.store.nats_server.blocks import (
    BlockFile,
    IndexFile,
    highway_hash,
    unpack_frames,
)
from natsd.store.nats_server.consumer_file import decode_consumer
from natsd.store.nats_server.encryption import Encryption, FileKey, KeyDoesNotOpen

META: Final = "meta.inf"
META_SUM: Final = "meta.sum"
META_KEY: Final = "meta.key"
CONSUMER_STATE: Final = "o.dat"
INDEX: Final = "index.db"
MESSAGES: Final = "msgs"
CONSUMERS: Final = "obs"
BLOCK_SUFFIX: Final = ".blk"
NEW_MESSAGES: Final = "__new_msgs__"
HASH_BYTES: Final = 8
BLOCK_BYTES_MAX: Final = 256 << 20  # far above a block with the longest message
_BLOCK_NAME: Final = re.compile(r"([0-9]{1,10})\.blk")
_COMPRESSED: Final = b"cmp"
_S2: Final = 1


class Unusable(Exception):
    """A file cannot be used; the message is one line that names it."""


class VerifiedBlock(NamedTuple):
    """A block that could be read: what `StreamFiles.load` needs to read it again."""

    number: int
    path: Path
    digest: int | None


@dataclass(frozen=True, slots=True)
class LoadedBlock:
    """A block's records; `notes` tell of damage to its frames, which the records show too.

    `digest` tells later whether the same bytes are read again, None: there is damage.
    """

    file: BlockFile
    digest: int | None
    notes: tuple[str, ...] = ()


class StreamFiles:
    """The files of the stream in `directory`; `encryption` has the keys of its account."""

    def __init__(self, directory: Path, encryption: Encryption) -> None:
        self.directory = directory
        self.name = directory.name
        self._encryption = encryption

    def meta(self) -> bytes:
        """Return the stream's configuration, JSON. Raises Unusable."""
        return self._meta(self.directory, self.name, self.name)

    def consumers(self) -> list[str]:
        """Return the names of the consumers' directories. Raises Unusable."""
        directory = self.directory / CONSUMERS
        if not directory.is_dir():
            return []
        return sorted(path.name for path in _entries(directory) if path.is_dir())

    def consumer_meta(self, consumer: str) -> bytes:
        """Return a consumer's configuration, JSON. Raises Unusable."""
        directory = self.directory / CONSUMERS / consumer
        return self._meta(directory, f"{self.name}/{consumer}", f"{self.name}.{consumer}")

    def consumer_state(self, consumer: str) -> ConsumerState:
        """Return a consumer's state; that of a new one if it has no file. Raises Unusable."""
        directory = self.directory / CONSUMERS / consumer
        path = directory / CONSUMER_STATE
        if not path.exists():
            return ConsumerState()
        data = _read(path)
        if not data:
            return ConsumerState()
        key = self._small_key(directory, f"{self.name}.{consumer}")
        try:
            return decode_consumer(key.open(data) if key else data)
        except (KeyDoesNotOpen, DamagedEncoding) as error:
            raise Unusable(f"{path}: {error}") from None

    def index(self) -> IndexFile | None:
        """Return the index; None if there is none. Raises Unusable."""
        path = self._messages / INDEX
        if not path.exists():
            return None
        data = _read(path)
        content, told = data[:-HASH_BYTES], data[-HASH_BYTES:]
        if highway_hash(hash_key(self.name), content) != told:
            raise Unusable(f"{path}: its checksum is wrong")
        key = self._small_key(self.directory, self.name)
        try:
            return IndexFile(key.open(content) if key else content)
        except (KeyDoesNotOpen, DamagedEncoding, OverflowError) as error:
            raise Unusable(f"{path}: {error}") from None

    def blocks(self) -> list[tuple[int, Path]]:
        """Return numbers and paths of the blocks, in order. Raises Unusable."""
        directory = self._messages
        if not directory.is_dir():
            return []
        purged = self._half_purged()
        found = [
            (int(match[1]), path)
            for path in _entries(directory)
            if (match := _BLOCK_NAME.fullmatch(path.name)) and int(match[1]) not in purged
        ]
        return sorted(found)

    def load(self, number: int, path: Path, digest: int | None = None) -> LoadedBlock:
        """Read a block and verify it, unless it was and has that digest. Raises Unusable."""
        if _size(path) > BLOCK_BYTES_MAX:
            raise Unusable(f"{path}: it is longer than {BLOCK_BYTES_MAX} bytes")
        data = _read(path)
        key_path = path.with_suffix(".key")
        if data and key_path.exists():
            data = self._open_key(key_path, f"{self.name}:{number}").apply(data)
        content, damaged = _uncompressed(data)
        notes = (f"{path}: {damaged} compressed parts are damaged",) if damaged else ()
        found = xxh3_64_intdigest(content)
        key = hash_key(f"{self.name}-{number}")
        file = BlockFile(content, key, is_verified=found == digest)
        is_whole = not (file.damage or file.torn_bytes)
        return LoadedBlock(file, found if is_whole else None, notes)

    @property
    def _messages(self) -> Path:
        """The directory of the messages: the new one if a purge was almost complete."""
        new = self.directory / NEW_MESSAGES
        if new.is_dir() and any(_BLOCK_NAME.fullmatch(path.name) for path in _entries(new)):
            return new
        return self.directory / MESSAGES

    def _half_purged(self) -> set[int]:
        """Return the blocks whose keys an unfinished purge has moved: they are gone."""
        new = self.directory / NEW_MESSAGES
        if not new.is_dir() or self._messages == new:
            return set()
        return {int(path.stem) for path in new.glob("*.key") if path.stem.isdecimal()}

    def _meta(self, directory: Path, hashed: str, context: str) -> bytes:
        path = directory / META
        data = _read(path)
        told = _read(directory / META_SUM)
        if highway_hash(hash_key(hashed), data).hex().encode() != told:
            raise Unusable(f"{path}: it does not match {META_SUM}")
        key = self._small_key(directory, context)
        try:
            return key.open(data) if key else data
        except KeyDoesNotOpen as error:
            raise Unusable(f"{path}: {error}") from None

    def _small_key(self, directory: Path, context: str) -> FileKey | None:
        path = directory / META_KEY
        return self._open_key(path, context) if path.exists() else None

    def _open_key(self, path: Path, context: str) -> FileKey:
        try:
            return self._encryption.open_key(_read(path), context)
        except KeyDoesNotOpen as error:
            raise Unusable(f"{path}: {error}") from None


def _uncompressed(data: bytes) -> tuple[bytes, int]:
    """Return a block's records, and how many of its compressed parts are damaged."""
    if data[:3] != _COMPRESSED or len(data) < HASH_BYTES + 5 or data[3] not in (0, _S2):
        return data, 0
    start = next((at + 1 for at in range(4, min(14, len(data))) if data[at] < 0x80), 14)
    if data[3] != _S2:
        return data[start:], 0
    content, damaged = unpack_frames(data[start:-HASH_BYTES])
    return content + data[-HASH_BYTES:], damaged


def hash_key(name: str) -> bytes:
    """Return the key of the checksums of a stream, a consumer or a block with that name."""
    return hashlib.sha256(name.encode()).digest()


def _entries(directory: Path) -> Iterator[Path]:
    try:
        yield from directory.iterdir()
    except OSError as error:
        raise Unusable(f"{directory}: {error.strerror}") from None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}") from None


def _read(path: Path) -> bytes:
    """Return the content of a file. Raises Unusable, also for a pipe or a device."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise Unusable(f"{path}: it is no regular file")
        return path.read_bytes()
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}") from None
