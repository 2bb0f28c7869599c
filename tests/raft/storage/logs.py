"""Logs on a simulated disk, plain or encrypted, and what tests do with them."""

import random
from pathlib import Path

import pytest

from natsd.raft.entry import Entry, EntryKind, Snapshot
from natsd.raft.storage.raft_logs import NO_KEYS, GroupWrite, RaftLogs
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.disk.disk import Disk
from tests.store.faulty_disk import FaultyDisk

ROOT = Path("/raft")
SEGMENT_BYTES = 16 << 10
KEYS = OperatorKeys(b"key of the operator")

with_and_without_a_key = pytest.mark.parametrize("keys", [NO_KEYS, KEYS], ids=["plain", "sealed"])


def open_logs(
    disk: Disk, seed: int = 0, segment_bytes: int = SEGMENT_BYTES, keys: OperatorKeys = NO_KEYS
) -> RaftLogs:
    chance = random.Random(seed)
    return RaftLogs.open(disk, ROOT, chance.randbytes, segment_bytes_max=segment_bytes, keys=keys)


def entry(index: int, term: int = 1, data: bytes = b"data") -> Entry:
    return Entry(index, term, EntryKind.NORMAL, data)


def write(logs: RaftLogs, *writes: GroupWrite) -> None:
    done: list[Exception | None] = []
    logs.write(writes, done.append)
    while not done:
        logs.wait()
    assert done == [None]


def put(logs: RaftLogs, group: str, snapshot: Snapshot) -> None:
    done: list[Exception | None] = []
    logs.put_snapshot(group, snapshot, done.append)
    while not done:
        logs.wait()
    assert done == [None]


def files_of(disk: FaultyDisk) -> list[Path]:
    names = [ROOT / name for name in disk.listdir(ROOT)]
    names += [ROOT / "snapshots" / name for name in disk.listdir(ROOT / "snapshots")]
    return [path for path in names if not disk.is_directory(path) and path.name != "lock"]


def contents(disk: FaultyDisk) -> dict[Path, bytes]:
    """Return the files of the logs as the next process reads them."""
    found = {}
    for path in files_of(disk):
        file = disk.open(path, write=False)
        found[path] = file.pread(file.size(), 0)
    return found
