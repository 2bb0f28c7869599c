"""Read plans for a store directory without a server: its streams and their live messages.

    <store_dir>[/jetstream]/natsd.lock                 locked for reading, shared with other readers
                           /journal.0 journal.1        replayed in memory
                           /<account>/streams/<stream>/meta.json   its existence defines the stream
                                                      /msgs/       its blocks, index.db, key.db

Promise
- No byte of the directory changes. The code that a server runs at its start runs here on a copy in
  memory (store/overlay_disk.py): replay of the journal, recovery from index.db if it is valid,
  otherwise from a scan of all blocks.
- So a plan has what a server would recover: the acknowledged messages, without removed, purged or
  erased ones. Messages that a server would remove after its start (by age, for example) are still
  there.
- A directory that a server uses is refused (InUse), and no server can start during planning or
  reading. A change between planning and reading is detected by the reader (StoreChanged).
- Memory: as recovery needs, without the stream's subjects, and one entry per block for the plan.

All functions block on the disk. They raise StoreNotReadable, StoreError, OSError.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from natsd.spark.stored.store_lock import LOCK_NAME, lock_against_servers, open_key
from natsd.spark.stored.stored_ranges import (
    NO_KEYS,
    BlockPart,
    StoreKeys,
    StoreNotReadable,
    StorePlace,
)
from natsd.spark.stored.stored_stream_plan import StoredStreamPlan
from natsd.store.block.stored_blocks import StoredBlock, StoredBlocks
from natsd.store.crypto.keys import KEY_FILE
from natsd.store.crypto.vault import Vault
from natsd.store.disk.disk import is_removed
from natsd.store.disk.real_disk import RealDisk
from natsd.store.disk.twin_file import twins_exist
from natsd.store.file_store import recover_files
from natsd.store.maintenance.check import (
    BLOCK_BYTES_MAX,
    Report,
    check_consumer,
    check_stream,
    check_twins,
    context_of,
    directories_below,
    is_consumer,
    is_stream,
    read_image,
)
from natsd.store.maintenance.overlay_disk import OverlayDisk, OverlayFile
from natsd.store.recovery.block_identity import place_of
from natsd.store.recovery.found_damage import FoundDamage
from natsd.store.recovery.full_scan import Recovered
from natsd.store.sequence_set import SequenceSet
from natsd.store.wal.replay import Replayed, replay

GLOBAL_ACCOUNT: Final = "$G"
# Same values as in natsd/jetstream/stream/files.py and asset_file.py.
STREAMS: Final = "streams"
MESSAGES: Final = "msgs"
ASSET_FILE: Final = "meta.json"
ASSET_MAGIC: Final = b"NATSDAST"
JETSTREAM: Final = "jetstream"
_COMPARED_BYTES: Final = 4096


class StoreDirectory:
    """A store directory, locked until `close`; its journal is replayed in memory."""

    def __init__(self, path: str | Path, keys: StoreKeys = NO_KEYS) -> None:
        self.root: Final = find_root(Path(path))
        self.keys: Final = keys
        self._operator = keys.operator()
        self._lock = lock_against_servers(self.root)
        try:
            self._disk = OverlayDisk(RealDisk())
            self.replayed: Replayed = replay(self._disk, self.root)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unlock the directory, so that servers may use it; further calls do nothing."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def streams(self, account: str = GLOBAL_ACCOUNT) -> list[str]:
        """Return the names of the account's streams, sorted."""
        directory = self.root / account / STREAMS
        if not self._disk.is_directory(directory):
            return []
        return [
            name
            for name in self._disk.listdir(directory)
            if twins_exist(self._disk, directory / name / ASSET_FILE) and not is_removed(name)
        ]

    def config(self, stream: str, account: str = GLOBAL_ACCOUNT) -> dict[str, Any]:
        """Return the stream's configuration from its `meta.json`; empty if that is damaged."""
        path = self._stream(stream, account) / ASSET_FILE
        body = Vault(self._disk, self.root, os.urandom, self._operator).read(path, ASSET_MAGIC)
        asset = json.loads(body) if body else {}
        config = asset.get("config", {})
        assert isinstance(config, dict)
        return config

    def plan(self, stream: str, account: str = GLOBAL_ACCOUNT) -> StoredStreamPlan:
        """Return the plan of the stream's live messages."""
        directory = self._stream(stream, account) / MESSAGES
        place = StorePlace(stream, str(self.root), str(directory), keys=self.keys)
        if not self._disk.is_directory(directory):
            return StoredStreamPlan(place, 1, 0, ())
        data_key = open_key(self._disk, self.root, directory, self._operator)
        blocks = StoredBlocks(
            self._disk, directory, os.urandom, block_bytes_max=BLOCK_BYTES_MAX, data_key=data_key
        )
        blocks.place = place_of(context_of(self.root, directory))
        found = recover_files(blocks)
        parts = tuple(_Parts(self._disk, found).all())
        files = {part.file for part in parts}
        elsewhere = tuple(
            _told(damage)
            for damage in found.damage
            if damage.first_sequence and damage.path.name not in files
        )
        return StoredStreamPlan(place, found.first_sequence, found.last_sequence, parts, elsewhere)

    def check_files(self, stream: str, account: str = GLOBAL_ACCOUNT) -> Report:
        """Check the stream's files except the blocks of its messages.

        These are its configuration, key, index and consumers, and its delayed messages.
        """
        directory, report = self._stream(stream, account), Report()
        for path in (directory / ASSET_FILE, directory / MESSAGES / KEY_FILE):
            report.findings += check_twins(self._disk.below, self.root, path)
        data_key = open_key(self._disk, self.root, directory / MESSAGES, self._operator)
        read_image(self._disk, directory / MESSAGES, data_key, os.urandom, report.findings)
        for below in directories_below(self._disk, directory):
            names = self._disk.listdir(below)
            if is_consumer(names):
                check_consumer(self._disk, self.root, below, os.urandom, report)
            elif is_stream(names) and below != directory / MESSAGES:  # delayed messages
                check_stream(self._disk, self.root, below, self._operator, os.urandom, report)
        return report

    def _stream(self, stream: str, account: str) -> Path:
        if stream not in self.streams(account):
            known = ", ".join(self.streams(account)[:20]) or "none"
            raise StoreNotReadable(
                f'there is no stream "{stream}" of account {account} in {self.root}; '
                f"there are: {known}"
            )
        return self.root / account / STREAMS / stream


def find_root(path: Path) -> Path:
    """Return the root of the volume: the directory, or `jetstream` in it."""
    path = path.absolute()
    if not path.is_dir():
        raise StoreNotReadable(f"{path} is not a directory")
    for root in (path, path / JETSTREAM):
        if (root / LOCK_NAME).exists() or any(root.glob(f"*/{STREAMS}")):
            return root
    raise StoreNotReadable(
        f"{path} is no store directory: neither it nor {JETSTREAM} in it has {LOCK_NAME}"
    )


class _Parts:
    """The blocks of a recovered stream, as parts of a plan."""

    def __init__(self, disk: OverlayDisk, found: Recovered) -> None:
        self._disk = disk
        self._found = found

    def all(self) -> Iterator[BlockPart]:
        """Yield the parts in order; blocks without live range are left out."""
        found = self._found
        ends = [later.block.base_sequence - 1 for _, later in pairwise(found.blocks)]
        for number, stored in enumerate(found.blocks):
            block = stored.block
            first = max(block.base_sequence, found.first_sequence)
            last = min([block.last_sequence, found.last_sequence, *ends[number : number + 1]])
            if first <= last:
                yield self._part(stored, first, last)

    def _part(self, stored: StoredBlock, first: int, last: int) -> BlockPart:
        block = stored.block
        dead = SequenceSet()
        dead.add_range(first, last)
        dead.intersection_update(self._found.dead)
        patch_offset, patch = self._patch(stored)
        return BlockPart(
            file=stored.path.name,
            block_id=block.block_id,
            seed=block.seed,
            first=first,
            last=last,
            rows=last - first + 1 - dead.count,
            size_bytes=block.live_bytes,
            end=stored.physical_end,
            proven=block.size,
            dead=dead.encode(),
            patch_offset=patch_offset,
            patch=patch,
            damage=tuple(
                _told(damage)
                for damage in self._found.damage
                if damage.path == stored.path and _is_lost(damage, first, last)
            ),
        )

    def _patch(self, stored: StoredBlock) -> tuple[int, bytes]:
        """Return where the file in memory differs from the file on disk, as (offset, bytes)."""
        with contextlib.closing(self._disk.open(stored.path, write=False)) as file:
            if not isinstance(file, OverlayFile):
                return 0, b""
            changed = file.pread(stored.physical_end, 0)
        below = self._disk.below
        if not below.exists(stored.path):
            return 0, changed
        with contextlib.closing(below.open(stored.path, write=False)) as file:
            return difference(changed, file.pread(stored.physical_end, 0))


def difference(new: bytes, old: bytes) -> tuple[int, bytes]:
    """Return the (offset, bytes) that change `old` to `new`; no bytes: they are equal."""
    old = old.ljust(len(new), b"\0")
    pages = [
        at
        for at in range(0, len(new), _COMPARED_BYTES)
        if new[at : at + _COMPARED_BYTES] != old[at : at + _COMPARED_BYTES]
    ]
    if not pages:
        return 0, b""
    return pages[0], new[pages[0] : pages[-1] + _COMPARED_BYTES]


def _is_lost(damage: FoundDamage, first: int, last: int) -> bool:
    if not damage.first_sequence or damage.first_sequence > last:
        return False
    return not damage.last_sequence or damage.last_sequence >= first


def _told(damage: FoundDamage) -> tuple[int, int, str]:
    where = f"{damage.path}: {damage.what} at byte {damage.offset} ({damage.length} bytes)"
    return damage.first_sequence, damage.last_sequence, where
