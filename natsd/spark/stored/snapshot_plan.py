"""Read plans for snapshots of a stream, by `natsd store snapshot` or the `nats` CLI's backup.

    orders.snapshot                        natsd store snapshot DIR orders.snapshot
    backup/backup.json  stream.tar.s2     nats stream backup ORDERS backup

Promise
- The driver reads and verifies the snapshot once, one entry at a time; a task reads only the frames
  of its own blocks.
- Every message in a snapshot is live: removed messages are in no snapshot.
- A task yields only what the driver verified, else it raises StoreChanged: each block is identified
  by the XXH64 of its bytes, which the driver computes and the task computes again. Time, size and
  inode of the file are not compared: a copy in its place is as good, and a task does not notice
  damage outside of its own blocks.
- A snapshot that nats-server made is refused (ForeignSnapshot, one line).

All functions block on the disk. They raise StoreNotReadable, StoreError, OSError.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from natsd.spark.stored.stored_ranges import (
    BlockPart,
    StoreNotReadable,
    StorePlace,
)
from natsd.spark.stored.stored_stream_plan import StoredStreamPlan
from natsd.store.backup.snapshot_map import EntryPlace, map_snapshot
from natsd.store.block.blocks import Scan
from natsd.store.codec.records import checksum
from natsd.store.errors import DamagedEncoding
from natsd.store.sequence_set import SequenceSet
from natsd.store.store import StoreState

# Same values as in natsd/jetstream/snapshot/contents.py.
META: Final = "meta.json"
MESSAGES: Final = "msgs/"
STATE: Final = "msgs/state.json"
BACKUP_FILE: Final = "stream.tar.s2"


@dataclass(slots=True)
class _Found:
    """The parts of the snapshot that were read so far."""

    stream: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    parts: list[BlockPart] = field(default_factory=list)
    state: StoreState | None = None


def find_snapshot(path: Path) -> Path | None:
    """Return the snapshot at a path: a file, or the one in a backup's directory; None: neither."""
    if path.is_file():
        return path
    return path / BACKUP_FILE if (path / BACKUP_FILE).is_file() else None


def plan_snapshot(path: str | Path) -> StoredStreamPlan:
    """Return the plan of the stream in a snapshot."""
    return read_snapshot(Path(path))[0]


def stream_of(path: str | Path) -> str:
    """Return the name of the stream in a snapshot; only the first entry is read."""
    snapshot = _snapshot(Path(path))
    found = _Found()
    with snapshot.open("rb") as file:
        for entry, body in map_snapshot(file):
            _take(found, entry, body)
            break
    if not found.stream:
        raise DamagedEncoding(f"{snapshot} holds no stream")
    return found.stream


def _snapshot(path: Path) -> Path:
    snapshot = find_snapshot(path)
    if snapshot is None:
        raise StoreNotReadable(f"{path} is neither a snapshot nor a directory with {BACKUP_FILE}")
    return snapshot


def read_snapshot(path: Path) -> tuple[StoredStreamPlan, dict[str, Any]]:
    """Return the plan and the configuration of the stream in a snapshot."""
    snapshot = _snapshot(path)
    found = _Found()
    with snapshot.open("rb") as file:
        try:
            for entry, body in map_snapshot(file):
                _take(found, entry, body)
        except (msgspec.MsgspecError, json.JSONDecodeError) as error:
            raise DamagedEncoding(f"{snapshot} is not understood: {error}") from None
    if found.state is None or not found.stream:
        raise DamagedEncoding(f"{snapshot} holds no stream")
    parts, state = found.parts, found.state
    if sum(part.rows for part in parts) != state.msgs:
        raise DamagedEncoding(f"{snapshot} does not hold what its state says")
    place = StorePlace(found.stream, snapshot=str(snapshot.absolute()))
    first = parts[0].first if parts else state.last_sequence + 1
    return StoredStreamPlan(place, first, state.last_sequence, tuple(parts)), found.config


def _take(found: _Found, entry: EntryPlace, body: bytes) -> None:
    if entry.name == META:
        found.config = json.loads(body).get("config", {})
        found.stream = str(found.config.get("name", ""))
    elif entry.name == STATE:
        found.state = msgspec.json.decode(body, type=StoreState)
    elif entry.name.startswith(MESSAGES):
        found.parts.append(part_of(entry, body))


def part_of(entry: EntryPlace, body: bytes) -> BlockPart:
    """Return the part of the plan for the image of a block. Raises DamagedEncoding."""
    scan = Scan(body, proven=len(body))
    sequences = SequenceSet(scan.sequences())
    first, last = sequences.first, sequences.last
    if not scan.readable or scan.damage or first is None or last is None:
        raise DamagedEncoding(f"{entry.name} of the snapshot does not verify")
    dead = SequenceSet()
    dead.add_range(first, last)
    dead.difference_update(sequences)
    return BlockPart(
        file=entry.name,
        block_id=scan.block_id,
        seed=checksum(body),
        first=first,
        last=last,
        rows=sequences.count,
        size_bytes=scan.live_bytes,
        end=entry.length,
        proven=entry.length,
        dead=dead.encode(),
        offset=entry.offset,
    )
