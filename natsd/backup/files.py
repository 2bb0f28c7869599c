"""Streams of a stopped server: copied from its store directory, and restored into it.

A directory that a server uses is refused. A copy changes no byte of the directory, and its damage
is a problem of the backup; the copies are those of `natsd store snapshot` (snapshot/offline.py).
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

from natsd.backup.collecting import Collector
from natsd.backup.composing import ComposedSnapshot, compose
from natsd.backup.directory import BackupDirectory
from natsd.backup.errors import BackupError, StreamFailed, StreamGone
from natsd.backup.manifest import Kind, StreamCopy, StreamRecord
from natsd.backup.source import Progress, Restored
from natsd.jetstream.account_resources import why_no_directory
from natsd.jetstream.asset_file import AssetDamaged
from natsd.jetstream.models.go_json import InvalidJson
from natsd.jetstream.nats_server.store_import import ImportedStream, import_snapshot
from natsd.jetstream.snapshot.offline import (
    NotPossible,
    StreamTaking,
    open_volume,
    read_snapshot,
)
from natsd.jetstream.stream.files import AccountFiles
from natsd.store.commit.volume import LOCK_NAME
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.disk.disk import DirectoryLocked, is_removed
from natsd.store.disk.real_disk import RealDisk
from natsd.store.errors import StoreError
from natsd.store.maintenance.overlay_disk import OverlayDisk


class StoreFiles:
    """The streams in a store directory (…/jetstream); the directory is locked until `close`.

    For restores, `is_target` leaves the lock to each restored stream.
    """

    def __init__(self, root: Path, keys: OperatorKeys, *, is_target: bool) -> None:
        """Lock the directory. Raises BackupError or OSError."""
        self._root = root
        self._keys = keys
        self._damage: list[str] = []
        self._held = contextlib.ExitStack()
        if is_target:
            root.mkdir(parents=True, exist_ok=True)
        elif not (root / LOCK_NAME).exists():
            raise BackupError(f"{root} is no store directory: it has no {LOCK_NAME}")
        try:
            overlay = self._held.enter_context(open_volume(RealDisk(), root))
        except DirectoryLocked as error:
            raise BackupError(str(error)) from None
        self._overlay: OverlayDisk = overlay
        if is_target:
            self._held.close()

    def close(self) -> None:
        """Release the lock."""
        self._held.close()

    @property
    def title(self) -> str:
        """The directory."""
        return f"files in {self._root}"

    def jwts(self) -> list[tuple[str, bytes]]:
        """Return nothing: a store has no JWTs; those of a configuration come from its files."""
        return []

    def damage(self) -> Iterator[str]:
        """Yield the damage that was found since the last call."""
        while self._damage:
            yield self._damage.pop(0)

    def accounts(self) -> list[str]:
        """Return the accounts that have streams."""
        names = self._overlay.listdir(self._root)
        return [
            name
            for name in sorted(names)
            if self._overlay.is_directory(self._root / name)
            and not why_no_directory(name)
            and not is_removed(name)
        ]

    def streams(self, account: str) -> list[str]:
        """Return the names of the account's streams."""
        return sorted(AccountFiles(self._root / account).list_streams(self._overlay))

    def copy(
        self, account: str, stream: str, collector: Collector, progress: Progress
    ) -> StreamCopy:
        """Read the stream."""
        directory = AccountFiles(self._root / account).stream(stream)
        if not directory.is_dir():
            raise StreamGone(f"{directory} does not exist")
        taking = StreamTaking(self._overlay, self._root, directory, self._keys, os.urandom)
        try:
            for name, body in taking.entries(progress, collector.choose):
                collector.take(name, body)
        except (NotPossible, AssetDamaged, InvalidJson, StoreError) as error:
            raise StreamFailed(str(error)) from None
        self._damage += taking.done.damage
        return collector.finish(account, stream)

    def restore(
        self,
        account: str,
        stream: str,
        record: StreamRecord,
        directory: BackupDirectory,
        size: int,
        progress: Progress,
        *,
        overwrites: bool,
    ) -> Restored:
        """Build the stream's directory; it is there as a whole, or not at all."""
        if record.kind is Kind.MEMORY:
            raise StreamFailed("a stream in memory can be restored by a server only")
        if why_no_directory(account):
            raise StreamFailed(f"account {account!r}: {why_no_directory(account)}")
        place = AccountFiles(self._root / account).stream(stream)
        if place.exists():
            self._make_room(place, overwrites=overwrites)
        snapshot = io.BufferedReader(ComposedSnapshot(compose(directory, record), size))
        target = RealDisk(), snapshot, self._root, account, self._keys, os.urandom, progress
        try:
            if record.kind is Kind.FOREIGN:
                return _restored(import_snapshot(*target))
            done = read_snapshot(*target)
        except DirectoryLocked as error:
            raise BackupError(str(error)) from None
        except (NotPossible, StoreError) as error:
            raise StreamFailed(str(error)) from None
        return Restored(done.messages, None, done.consumers)

    def _make_room(self, place: Path, *, overwrites: bool) -> None:
        """Remove a stream that exists. Raises StreamFailed if that is not allowed."""
        if not overwrites:
            raise StreamFailed(f"{place} exists; --overwrite replaces it")
        lock = RealDisk().lock(self._root / LOCK_NAME)
        try:
            RealDisk().rmtree(place)
        finally:
            lock.release()


def _restored(stream: ImportedStream) -> Restored:
    if not stream.is_complete:
        reasons = [stream.reason] if stream.reason else stream.damage + stream.not_taken
        raise StreamFailed("; ".join(reasons[:3]))
    return Restored(stream.messages, None, stream.consumers)
