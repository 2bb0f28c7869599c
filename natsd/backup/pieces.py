"""Pieces: the files that hold the data of backups, each once, named by its content.

    <directory>/pieces/3f/3f08…c1     40 hexadecimal digits: BLAKE2b of the content, 20 bytes
    plain piece       a snapshot (store/backup/snapshot_file.py) with one entry, `piece`
    encrypted piece   "NATSDPCE" │ version u16 │ nonce 12 bytes │ the plain piece, encrypted with
                      ChaCha20-Poly1305; the name is authenticated

Promise
- A piece is written beside its place, synced, and renamed: a piece that has its name is whole and
  on disk, once its directory is synced (`sync`).
- A piece that is read is verified: frames, entry and name. DamagedPiece names its file.
- A directory may come from anybody: a name of a piece is no path, a pipe or a device is not read,
  and no more is unpacked than one entry.
- Of an encrypted piece the name is a keyed hash, so it tells nothing about the content. The keys
  are derived from the content of the key file and the salt of the directory.

Calls may come from several threads.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag

from natsd.backup.errors import DamagedPiece
from natsd.core.quoting import quoted
from natsd.store.backup.snapshot_file import ENTRY_BYTES_MAX, SnapshotReader, SnapshotWriter
from natsd.store.crypto.keys import Cipher, derive, make_aead
from natsd.store.errors import DamagedEncoding, ForeignSnapshot

NAME_BYTES: Final = 20
ENTRY: Final = "piece"
UNFINISHED: Final = ".new"
FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
MAGIC: Final = b"NATSDPCE"
VERSION: Final = 1
NONCE_BYTES: Final = 12
FILE_BYTES_MAX: Final = ENTRY_BYTES_MAX + (1 << 20)
"""Size of the largest file: an entry that cannot be compressed, with its frames."""
UNPACKED_AT_ONCE: Final = 1 << 20
"""Bytes of a file that are unpacked before its entries are counted."""
_NAME: Final = re.compile(f"[0-9a-f]{{{2 * NAME_BYTES}}}")
_HEAD: Final = Struct(f"<8sH{NONCE_BYTES}s")
_NAME_INFO: Final = b"natsd backup name"
_PIECE_INFO: Final = b"natsd backup piece"


class PieceKey:
    """The encryption of a directory's files; without a secret they are plain."""

    def __init__(self, secret: bytes | None, salt: bytes) -> None:
        self.is_secret = secret is not None
        self._name_key = b"" if secret is None else derive(secret, salt, _NAME_INFO)
        self._aead = None
        if secret is not None:
            self._aead = make_aead(Cipher.CHACHA20_POLY1305, derive(secret, salt, _PIECE_INFO))

    def name(self, body: bytes) -> str:
        """Return the name of the piece with this content."""
        return hashlib.blake2b(body, digest_size=NAME_BYTES, key=self._name_key).hexdigest()

    def pack(self, body: bytes, name: str) -> bytes:
        """Return the bytes of a file with this content; `name` is authenticated."""
        writer = SnapshotWriter()
        packed = b"".join((writer.begin(), writer.entry(ENTRY, body), writer.end()))
        if self._aead is None:
            return packed
        nonce = os.urandom(NONCE_BYTES)
        return _HEAD.pack(MAGIC, VERSION, nonce) + self._aead.encrypt(nonce, packed, name.encode())

    def unpack(self, data: bytes, name: str) -> bytes:
        """Return the content of a file. Raises DamagedPiece with the reason."""
        if self._aead is not None:
            if len(data) < _HEAD.size or data[: len(MAGIC)] != MAGIC:
                raise DamagedPiece("it is not an encrypted piece")
            _, version, nonce = _HEAD.unpack_from(data)
            if version != VERSION:
                raise DamagedPiece("its version is not known here")
            try:
                data = self._aead.decrypt(nonce, data[_HEAD.size :], name.encode())
            except InvalidTag:
                raise DamagedPiece("it is damaged, or the key is wrong") from None
        elif data[: len(MAGIC)] == MAGIC:
            raise DamagedPiece("it is encrypted: a key file is needed")
        return _unpack_entry(data)


class StoredPiece(NamedTuple):
    """A piece of a directory: its name, and the size of its file in bytes."""

    name: str
    stored: int


class Pieces:
    """The pieces of one directory."""

    def __init__(self, directory: Path, key: PieceKey) -> None:
        self.directory: Final = directory
        self.written_bytes = 0  # of files, since the creation of this object
        self._key = key
        self._touched: set[Path] = set()  # directories with new names

    def path(self, name: str) -> Path:
        """Return the path of a piece's file. Raises DamagedPiece if no piece has such a name."""
        if not _NAME.fullmatch(name):
            raise DamagedPiece(f"{quoted(name)} is no name of a piece")
        return self.directory / name[:2] / name

    def put(self, body: bytes) -> StoredPiece:
        """Store a piece, unless it is there; it is on disk after `sync`. Raises OSError."""
        name = self._key.name(body)
        path = self.path(name)
        data = self._key.pack(body, name)
        if not self.has(StoredPiece(name, len(data))):
            make_directories(path.parent)
            write_synced(path, data)
            self._touched.add(path.parent)
            self.written_bytes += len(data)
        return StoredPiece(name, len(data))

    def has(self, piece: StoredPiece) -> bool:
        """Return whether the piece's file is there with its size."""
        try:
            return self.path(piece.name).stat().st_size == piece.stored
        except (OSError, DamagedPiece):
            return False

    def get(self, name: str) -> bytes:
        """Return the verified content of a piece. Raises DamagedPiece or OSError."""
        return self._get(name, drops_cache=False)

    def _get(self, name: str, *, drops_cache: bool) -> bytes:
        path = self.path(name)
        try:
            data = read_file(path, drops_cache=drops_cache)
        except FileNotFoundError:
            raise DamagedPiece(f"{path} is missing") from None
        try:
            body = self._key.unpack(data, name)
        except DamagedPiece as error:
            raise DamagedPiece(f"{path}: {error}") from None
        if self._key.name(body) != name:
            raise DamagedPiece(f"{path} holds another piece than its name says")
        return body

    def get_from_disk(self, name: str) -> bytes:
        """Return the verified content as `get` does, but not from the page cache if possible."""
        return self._get(name, drops_cache=True)

    def sync(self) -> None:
        """Sync the names of all pieces that were put. Raises OSError."""
        for directory in [*self._touched, self.directory, self.directory.parent]:
            if directory.exists():
                sync_directory(directory)
        self._touched.clear()

    def remove_others(self, kept: set[str]) -> tuple[int, int]:
        """Remove the pieces that are not in `kept`; return their number and bytes. Raises OSError.

        Files that an interrupted write left are removed too.
        """
        count = size = 0
        for path in list(self._files()):
            if path.name not in kept:
                count, size = count + 1, size + path.stat().st_size
                path.unlink()
        return count, size

    def _files(self) -> Iterator[Path]:
        yield from (path for path in self.directory.glob("[0-9a-f][0-9a-f]/*") if path.is_file())


def _unpack_entry(data: bytes) -> bytes:
    """Return the content of a plain piece. Raises DamagedPiece with the reason."""
    reader = SnapshotReader()
    entries: list[tuple[str, bytes]] = []
    try:
        for start in range(0, len(data), UNPACKED_AT_ONCE):
            entries += reader.feed(data[start : start + UNPACKED_AT_ONCE])
            if any(name != ENTRY for name, _ in entries) or len(entries) > 1:
                raise DamagedPiece("it holds something else than a piece")
        reader.finish()
    except (DamagedEncoding, ForeignSnapshot) as error:
        raise DamagedPiece(f"it is damaged: {error}") from None
    if not entries:
        raise DamagedPiece("it holds no piece")
    return entries[0][1]


def read_file(path: Path, *, drops_cache: bool = False) -> bytes:
    """Return the content of a regular file. Raises DamagedPiece or OSError.

    With `drops_cache` it is read from the disk if possible, not from the page cache.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > FILE_BYTES_MAX:
        raise DamagedPiece(f"{path} is no file of a backup")
    with path.open("rb") as file:
        if drops_cache and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return file.read()


def write_synced(path: Path, data: bytes, sync: Callable[[int], None] = os.fsync) -> None:
    """Write a file beside its place, sync it, and rename it to its place. Raises OSError."""
    unfinished = path.with_name(f"{path.name}{UNFINISHED}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    descriptor = os.open(unfinished, flags, FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        sync(file.fileno())
    unfinished.replace(path)


def make_directories(path: Path) -> None:
    """Make a directory and those above it, for the user alone. Raises OSError."""
    for each in (*reversed(path.parents), path):
        each.mkdir(mode=DIRECTORY_MODE, exist_ok=True)


def sync_directory(path: Path) -> None:
    """Sync the names in a directory. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
