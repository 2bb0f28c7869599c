"""A snapshot of a stream as a plan: what `natsd store snapshot` or the `nats` CLI's backup wrote.

    orders.archive                        natsd store snapshot DIR orders.archive
    backup/backup.json  stream.tar.s2     nats stream backup ORDERS backup

Promise
- The archive is read and verified once by the driver, an entry at a time; a task reads the frames
  of its own blocks only.
- Every message in it lives: what was removed is in no archive.
- A task gives nothing of an archive that is not what the driver verified (StoreChanged): each block
  is known by the XXH64 of its bytes, which the driver computed and the task computes again. No file
  is known by its time, size or inode: a copy in its place is as good, and damage outside of the
  blocks that a task reads is not seen by that task.
- An archive that nats-server made is refused in one line (ForeignArchive).

Blocks. Raises StoreNotReadable, StoreError, OSError.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from natsd.spark.stored.stored_ranges import BlockPart, StoreNotReadable, StorePlace, StreamPlan
from natsd.store.archive_map import EntryPlace, map_archive
from natsd.store.errors import DamagedEncoding
from natsd.store.record import checksum
from natsd.store.scan import Scan
from natsd.store.sequence_set import SequenceSet
from natsd.store.store import StoreState

# As natsd/jetstream/archive/contents.py has them.
META: Final = "meta.json"
MESSAGES: Final = "msgs/"
STATE: Final = "msgs/state.json"
BACKUP_FILE: Final = "stream.tar.s2"


@dataclass(slots=True)
class _Found:
    """What was read so far."""

    stream: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    parts: list[BlockPart] = field(default_factory=list)
    state: StoreState | None = None


def find_archive(path: Path) -> Path | None:
    """The archive that a path means: a file, or the one in a backup's directory; None: neither."""
    if path.is_file():
        return path
    return path / BACKUP_FILE if (path / BACKUP_FILE).is_file() else None


def plan_archive(path: str | Path) -> StreamPlan:
    """The stream in an archive."""
    return read_archive(Path(path))[0]


def stream_of(path: str | Path) -> str:
    """The name of the stream in an archive, of which no more is read than its beginning."""
    archive = _archive(Path(path))
    found = _Found()
    with archive.open("rb") as file:
        for entry, body in map_archive(file):
            _take(found, entry, body)
            break
    if not found.stream:
        raise DamagedEncoding(f"{archive} holds no stream")
    return found.stream


def _archive(path: Path) -> Path:
    archive = find_archive(path)
    if archive is None:
        raise StoreNotReadable(f"{path} is neither an archive nor a directory with {BACKUP_FILE}")
    return archive


def read_archive(path: Path) -> tuple[StreamPlan, dict[str, Any]]:
    """The plan, and the stream's configuration."""
    archive = _archive(path)
    found = _Found()
    with archive.open("rb") as file:
        try:
            for entry, body in map_archive(file):
                _take(found, entry, body)
        except (msgspec.MsgspecError, json.JSONDecodeError) as error:
            raise DamagedEncoding(f"{archive} is not understood: {error}") from None
    if found.state is None or not found.stream:
        raise DamagedEncoding(f"{archive} holds no stream")
    parts, state = found.parts, found.state
    if sum(part.rows for part in parts) != state.msgs:
        raise DamagedEncoding(f"{archive} does not hold what its state says")
    place = StorePlace(found.stream, archive=str(archive.absolute()))
    first = parts[0].first if parts else state.last_sequence + 1
    return StreamPlan(place, first, state.last_sequence, tuple(parts)), found.config


def _take(found: _Found, entry: EntryPlace, body: bytes) -> None:
    if entry.name == META:
        found.config = json.loads(body).get("config", {})
        found.stream = str(found.config.get("name", ""))
    elif entry.name == STATE:
        found.state = msgspec.json.decode(body, type=StoreState)
    elif entry.name.startswith(MESSAGES):
        found.parts.append(part_of(entry, body))


def part_of(entry: EntryPlace, body: bytes) -> BlockPart:
    """A block's image as a part. Raises DamagedEncoding."""
    scan = Scan(body, proven=len(body))
    sequences = SequenceSet(scan.sequences())
    first, last = sequences.first, sequences.last
    if not scan.readable or scan.damage or first is None or last is None:
        raise DamagedEncoding(f"{entry.name} of the archive does not verify")
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
