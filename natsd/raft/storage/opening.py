"""How a start turns what it has recovered into logs that can be written.

    key ─> recover ─> write the newest bytes again, and sync ─> new segments ─> remove leftovers
                                                                 │
               with damage, or if the logs are plain and there is a key: all live entries too,
                                                                   so that old segments can go

Promise
- Bytes that a start has read are on disk before anything depends on them: an earlier process may
  have been killed before its sync, or its sync may have failed.
- Old segments get no more batches, so what is torn at their end stays where it is.
- A key that does not open what is there stops the start before any file of the logs is changed.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from natsd.raft.storage.group_log import GroupLog, Run
from natsd.raft.storage.log_files import LogFiles, Segment
from natsd.raft.storage.records import LOG_MAGIC, STATE_MAGIC, GroupState
from natsd.raft.storage.recovery import (
    LOG_PREFIX,
    SNAPSHOTS,
    STATE_PREFIX,
    Damage,
    Recovered,
    RecoveredGroup,
    Replay,
    recover,
)
from natsd.raft.storage.sealing import LogKey, begin_encrypting, end_encrypting, open_key
from natsd.raft.storage.segment_reader import segment_number
from natsd.raft.storage.snapshot_files import encrypt_snapshot, is_snapshot, parse_name
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.disk.disk import Disk, Lock, make_directories
from natsd.store.disk.holes import write_again

STATE_SEGMENT_BYTES_MAX = 1 << 20
SET_ASIDE = ".damaged"
LOCK_NAME = "lock"
SYNCED_AGAIN = 2  # newest segments that may hold bytes that were never synced

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Opened:
    """What RaftLogs begins with."""

    log: LogFiles
    states: LogFiles
    snapshots: Path
    groups: dict[bytes, GroupLog]
    version: int
    recovered: dict[str, RecoveredGroup]
    damage: list[Damage]
    segment_bytes_max: int
    must_rewrite: bool
    key: LogKey | None
    damaged_paths: set[Path] = field(default_factory=set)
    leftovers: list[Path] = field(default_factory=list)

    def remove_leftovers(self, disk: Disk) -> None:
        """Remove, or set aside, the files that nothing refers to any more."""
        for path in self.leftovers:
            remove_file(disk, path, path in self.damaged_paths)

    def encrypt_rest(self, disk: Disk, directory: Path, keys: OperatorKeys) -> None:
        """Encrypt the snapshots, and end the encryption of plain logs, if that is under way."""
        if self.key is None:
            return
        if self.key.is_encrypting:
            for name, group in self.recovered.items():
                if group.snapshot is not None and group.snapshot.index:
                    group_name = os.fsencode(name)
                    encrypt_snapshot(disk, self.snapshots, group_name, group.snapshot, self.key)
            live = {each.path for each in (*self.log.segments, *self.states.segments)}
            if plain := [path for path in _segments(disk, directory) if path not in live]:
                _logger.error("%s is not encrypted, and is removed by a later start", plain[0])
                return
        end_encrypting(disk, directory, keys, self.key)


def remove_file(disk: Disk, path: Path, is_damaged: bool) -> None:
    """Remove a file that the logs do not need; a damaged one gets another name. Blocks."""
    with contextlib.suppress(FileNotFoundError):
        if is_damaged:
            disk.rename(path, _free_name(disk, path))
        else:
            disk.unlink(path)


def _free_name(disk: Disk, path: Path) -> Path:
    target, number = path.with_name(path.name + SET_ASIDE), 0
    while disk.exists(target):
        number += 1
        target = path.with_name(f"{path.name}{SET_ASIDE}.{number}")
    return target


def open_files(
    disk: Disk,
    directory: Path,
    random_bytes: Callable[[int], bytes],
    segment_bytes_max: int,
    keys: OperatorKeys,
) -> tuple[Lock, Opened]:
    """Recover the directory, which is locked, and prepare new segments. Blocks."""
    make_directories(disk, directory / SNAPSHOTS)
    lock = disk.lock(directory / LOCK_NAME)
    try:
        key = open_key(disk, directory, keys, random_bytes)
        found = recover(disk, directory, key)
        key = key or begin_encrypting(disk, directory, keys, random_bytes)
        if key is not None and key.is_encrypting and found.log.segments:
            _logger.warning("%s: the RAFT logs are plain, and are being encrypted", directory)
        _sync_again(disk, directory, found)
        version, groups = _group_logs(found)
        opened = Opened(
            _files(disk, directory, random_bytes, found.log, segment_bytes_max, key),
            _files(disk, directory, random_bytes, found.state, STATE_SEGMENT_BYTES_MAX, key),
            directory / SNAPSHOTS,
            groups,
            version,
            {os.fsdecode(name): group for name, group in found.groups.items()},
            found.damage,
            segment_bytes_max,
            not found.log.is_whole or (key is not None and key.is_encrypting),
            key,
            found.log.damaged_paths | found.state.damaged_paths | found.damaged_snapshots,
        )
        opened.leftovers = _leftovers(disk, directory, found, opened)
    except BaseException:
        lock.release()
        raise
    return lock, opened


def _files(
    disk: Disk,
    directory: Path,
    random_bytes: Callable[[int], bytes],
    found: Replay,
    bytes_max: int,
    key: LogKey | None,
) -> LogFiles:
    is_log = found.prefix == LOG_PREFIX
    return LogFiles(
        disk,
        directory,
        found.prefix,
        LOG_MAGIC if is_log else STATE_MAGIC,
        random_bytes,
        bytes_max,
        [Segment(path, number, end) for path, number, end in found.segments],
        found.last_segment,
        found.last_batch,
        found.last_touched,
        key,
    )


def _sync_again(disk: Disk, directory: Path, found: Recovered) -> None:
    for replay in (found.log, found.state):
        for path, _, end in replay.segments[-SYNCED_AGAIN:]:
            with contextlib.closing(disk.open(path)) as file:
                write_again(file, 0, min(end, file.size()))
                file.fdatasync()
    disk.sync_dir(directory / SNAPSHOTS)
    disk.sync_dir(directory)


def _group_logs(found: Recovered) -> tuple[int, dict[bytes, GroupLog]]:
    """Return the newest version of a state, and the groups as the new segments begin with them."""
    version = found.version
    groups: dict[bytes, GroupLog] = {}
    for name, recovered in found.groups.items():
        groups[name] = group = GroupLog(name)
        version += 1
        state = found.states[name]._replace(version=version)
        if recovered.snapshot is None:
            state = state._replace(replaced=version)
        group.state = GroupState(*state[:3], state.snapshot_index, state.snapshot_term)
        if recovered.entries:
            group.append(recovered.entries, 0)
            group.runs = _runs(recovered.entries[0].index, found.places[name])
    return version, groups


def _runs(first: int, places: list[int]) -> list[Run]:
    """Return the runs of entries from `first` on, of which `places` are the segments."""
    runs: list[Run] = []
    for index, segment in enumerate(places, first):
        if not runs or runs[-1].segment != segment:
            runs.append(Run(index, segment))
    return runs


def _leftovers(disk: Disk, directory: Path, found: Recovered, opened: Opened) -> list[Path]:
    """Return the files that nothing refers to: dead segments, and snapshots that do not count."""
    live = {path for path, _, _ in (*found.log.segments, *found.state.segments)}
    leftovers = [path for path in _segments(disk, directory) if path not in live]
    for name in disk.listdir(directory / SNAPSHOTS):
        said = parse_name(name)
        if said is None:
            continue
        path, group = directory / SNAPSHOTS / name, opened.groups.get(said.group)
        if group is not None:
            counts = (said.index, said.term) == (
                group.state.snapshot_index,
                group.state.snapshot_term,
            )
            if not counts:
                leftovers.append(path)
        elif said.group in found.removed or (found.is_sure_of_groups and is_snapshot(disk, path)):
            leftovers.append(path)
    return leftovers


def _segments(disk: Disk, directory: Path) -> list[Path]:
    """Return the files of all segments, whether they count or not."""
    return [
        directory / name
        for name in disk.listdir(directory)
        if any(segment_number(name, prefix) for prefix in (LOG_PREFIX, STATE_PREFIX))
    ]
