"""A directory of backups: its format, its lock, its manifests, and what an interrupted one left.

    <directory>/natsd-backup      {"format": "natsd backup", "version": 1, "salt": …}
                lock              locked by the process that writes or prunes
                backups/<id>      a manifest, packed like a piece; the id is its time in UTC
                pieces/           the data (pieces.py)
                unfinished        a line for each block that an unfinished backup has stored

Promise
- A manifest is written last, after everything that it names is on disk, and in one step: a backup
  exists as a whole or not at all, and an interrupted one changes no other.
- What an interrupted backup has stored is not transferred again by the next one (`known_blocks`).
- A directory of another format, or of a later version, is refused, and so are two writers at once.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

import msgspec

from natsd.backup.errors import BackupError, DamagedPiece
from natsd.backup.manifest import VERSION, Body, Entry, Manifest, StreamRecord, decode, encode
from natsd.backup.pieces import (
    DIRECTORY_MODE,
    FILE_MODE,
    UNFINISHED,
    PieceKey,
    Pieces,
    StoredPiece,
    make_directories,
    read_file,
    sync_directory,
    write_synced,
)
from natsd.store.disk.disk import DirectoryLocked
from natsd.store.disk.real_disk import RealDisk

MARKER: Final = "natsd-backup"
FORMAT: Final = "natsd backup"
LOCK: Final = "lock"
BACKUPS: Final = "backups"
PIECES: Final = "pieces"
JOURNAL: Final = "unfinished"
SALT_BYTES: Final = 32
_ID: Final = re.compile(r"\d{8}T\d{6}\.\d{6}Z\+*")


class _Marker(msgspec.Struct, frozen=True):
    format: str
    version: int
    salt: str
    is_encrypted: bool


class BackupDirectory:
    """An open directory of backups; `create` or `open` makes one."""

    def __init__(self, path: Path, marker: _Marker, secret: bytes | None) -> None:
        if marker.is_encrypted and secret is None:
            raise BackupError(f"{path} is encrypted: it needs --key-file")
        if secret is not None and not marker.is_encrypted:
            raise BackupError(f"{path} is not encrypted, but a key is given")
        self.path: Final = path
        self._key = PieceKey(secret, base64.b64decode(marker.salt))
        self.pieces: Final = Pieces(path / PIECES, self._key)

    @classmethod
    def create(cls, path: Path, secret: bytes | None) -> BackupDirectory:
        """Open the directory; a new or empty one becomes a directory of backups.

        Raises BackupError or OSError.
        """
        make_directories(path)
        marker = path / MARKER
        if not marker.exists() and set(os.listdir(path)) <= {f"{MARKER}{UNFINISHED}"}:
            salt = base64.b64encode(os.urandom(SALT_BYTES)).decode()
            made = _Marker(FORMAT, VERSION, salt, secret is not None)
            write_synced(marker, msgspec.json.encode(made) + b"\n")
            sync_directory(path)
            sync_directory(path.parent)
        return cls.open(path, secret)

    @classmethod
    def open(cls, path: Path, secret: bytes | None) -> BackupDirectory:
        """Open a directory of backups. Raises BackupError or OSError."""
        try:
            data = read_file(path / MARKER)
        except (FileNotFoundError, NotADirectoryError):
            raise BackupError(f"{path} is not a directory of backups") from None
        try:
            marker = msgspec.json.decode(data, type=_Marker)
            base64.b64decode(marker.salt, validate=True)
        except ValueError:
            raise BackupError(f"{path / MARKER} is not understood") from None
        if marker.format != FORMAT or marker.version != VERSION:
            raise BackupError(f"{path} is of version {marker.version}, which is not known here")
        return cls(path, marker, secret)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of writers within the context. Raises BackupError."""
        try:
            lock = RealDisk().lock(self.path / LOCK)
        except DirectoryLocked as error:
            raise BackupError(
                f"{self.path}: another backup runs (process {error.holder_pid})"
            ) from None
        try:
            yield
        finally:
            lock.release()

    # Backups

    def ids(self) -> list[str]:
        """Return the ids of all backups, the oldest first; other files do not count."""
        directory = self.path / BACKUPS
        if not directory.is_dir():
            return []
        return sorted(name for name in os.listdir(directory) if _ID.fullmatch(name))

    def read(self, backup_id: str) -> Manifest:
        """Return a manifest. Raises DamagedPiece or OSError."""
        path = self.path / BACKUPS / backup_id
        try:
            body = self._key.unpack(read_file(path), backup_id)
        except FileNotFoundError:
            raise DamagedPiece(f"{self.path} has no backup {backup_id}") from None
        except DamagedPiece as error:
            raise DamagedPiece(f"{path}: {error}") from None
        manifest = decode(Manifest, body, str(path))
        if manifest.version != VERSION or manifest.id != backup_id:
            raise DamagedPiece(f"{path} is another backup than its name says")
        return manifest

    def find(self, wanted: str | None) -> Manifest:
        """Return the backup with that id, or the newest one before that time; None: the newest.

        Raises BackupError or OSError.
        """
        ids = self.ids()
        if not ids:
            raise BackupError(f"{self.path} has no backup")
        if wanted is None:
            return self.read(ids[-1])
        found = [each for each in ids if each == wanted or each[: len(wanted)] <= wanted]
        if not found:
            raise BackupError(f"{self.path} has no backup {wanted}, nor one before")
        return self.read(found[-1])

    def newest_first(self) -> Iterator[Manifest]:
        """Yield all backups that can be read, the newest first. Raises OSError."""
        for backup_id in reversed(self.ids()):
            with contextlib.suppress(DamagedPiece):
                yield self.read(backup_id)

    def new_id(self, now_ns: int) -> str:
        """Return the id of a backup that begins at `now_ns`, which is above all others."""
        return max(id_of(now_ns), *(_following(each) for each in self.ids()), "")

    def write(self, manifest: Manifest) -> None:
        """Write a manifest, after everything that it names; forget the unfinished backup.

        Raises OSError.
        """
        self.pieces.sync()
        directory = self.path / BACKUPS
        directory.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        write_synced(directory / manifest.id, self._key.pack(encode(manifest), manifest.id))
        sync_directory(directory)
        sync_directory(self.path)
        self.forget_unfinished()

    def remove(self, backup_id: str) -> None:
        """Remove a backup; its pieces stay. Raises OSError."""
        (self.path / BACKUPS / backup_id).unlink()

    # Records

    def body(self, body: Body) -> bytes:
        """Return the bytes of a body. Raises DamagedPiece or OSError."""
        return self.pieces.get(body.piece) if body.piece else body.inline

    def record(self, body: Body) -> StreamRecord:
        """Return a stream's record. Raises DamagedPiece or OSError."""
        where = str(self.pieces.path(body.piece)) if body.piece else str(self.path)
        return decode(StreamRecord, self.body(body), where)

    # The unfinished backup

    def known_blocks(self) -> dict[bytes, Entry]:
        """Return the blocks that an unfinished backup has stored, by their keys. Raises OSError."""
        found: dict[bytes, Entry] = {}
        with contextlib.suppress(FileNotFoundError):
            for line in read_file(self.path / JOURNAL).split(b"\n"):
                with contextlib.suppress(msgspec.MsgspecError):  # the last line may be cut
                    entry = msgspec.json.decode(line, type=Entry)
                    if self.pieces.has(StoredPiece(entry.body.piece, entry.body.stored)):
                        found[entry.key] = entry
        return found

    def forget_unfinished(self) -> None:
        """Forget which blocks an unfinished backup has stored. Raises OSError."""
        (self.path / JOURNAL).unlink(missing_ok=True)

    def open_journal(self) -> IO[bytes]:
        """Open the list of stored blocks, to append an encoded Entry for each. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        return os.fdopen(os.open(self.path / JOURNAL, flags, FILE_MODE), "ab", 0)


def id_of(time_ns: int) -> str:
    """Return the id of a backup that began at that time: 20261123T225557.123456Z."""
    moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    return f"{moment:%Y%m%dT%H%M%S}.{time_ns % 1_000_000_000 // 1000:06d}Z"


def _following(backup_id: str) -> str:
    """Return an id that is above the given one, for a clock that went back."""
    return f"{backup_id}+"
