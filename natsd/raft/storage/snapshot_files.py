"""The snapshots of the groups: one file each, which holds its content twice.

    snapshots/<group, quoted>.<index>.<term>

A snapshot is written and synced first; then the log says that it counts, and only then the one
before is removed. So a file that no group's state names is a leftover, and is removed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

from natsd.raft.entry import NOTHING, Snapshot
from natsd.raft.membership import decode_membership, encode_membership
from natsd.store.disk.disk import CommitJob, Disk
from natsd.store.disk.doubled_file import Content, decode_doubled, encode_doubled, read_file
from natsd.store.disk.holes import is_unreadable

MAGIC = b"NATSDRSN"
FIELDS = struct.Struct("<QQI")


@dataclass(frozen=True, slots=True)
class SnapshotName:
    """What the name of a file says."""

    group: bytes
    index: int
    term: int


def snapshot_path(directory: Path, group: bytes, index: int, term: int) -> Path:
    """Return the path of a group's snapshot."""
    return directory / f"{quote_from_bytes(group, safe='')}.{index}.{term}"


def parse_name(name: str) -> SnapshotName | None:
    """Return what a file's name says; None: it is no snapshot."""
    group, *numbers = name.rsplit(".", 2)
    if len(numbers) != 2 or not all(each.isdecimal() for each in numbers):
        return None
    return SnapshotName(unquote_to_bytes(group), int(numbers[0]), int(numbers[1]))


def add_put(job: CommitJob, directory: Path, group: bytes, snapshot: Snapshot) -> None:
    """Add the steps that write a snapshot and sync it."""
    membership = encode_membership(snapshot.membership)
    body = FIELDS.pack(snapshot.index, snapshot.term, len(membership)) + membership + snapshot.data
    data = encode_doubled(Content(MAGIC, body, 1, group.decode("utf-8", "surrogateescape")))
    job.put_file(snapshot_path(directory, group, snapshot.index, snapshot.term), data)
    job.sync_directory(directory)


def read_snapshot(
    disk: Disk, directory: Path, group: bytes, index: int, term: int
) -> tuple[Snapshot | None, str]:
    """Return a group's snapshot, and what is wrong with its file.

    The snapshot is None if it is lost; it is there if only one of its two copies is. Blocks. Raises
    `OSError` unless the error says that the file is gone or unreadable.
    """
    if index == 0:
        return NOTHING, ""
    try:
        doubled = decode_doubled(read_file(disk, snapshot_path(directory, group, index, term)))
    except FileNotFoundError:
        return None, "the snapshot is missing"
    except OSError as error:
        if not is_unreadable(error):
            raise
        return None, f"the snapshot cannot be read: {error}"
    content = doubled.content
    place = group.decode("utf-8", "surrogateescape")
    if content is None or (content.magic, content.place) != (MAGIC, place):
        return None, "the snapshot does not verify"
    found_index, found_term, length = FIELDS.unpack_from(content.body)
    if (found_index, found_term) != (index, term):
        return None, f"the snapshot is that of entry {found_index}, not {index}"
    membership = decode_membership(content.body[FIELDS.size : FIELDS.size + length])
    snapshot = Snapshot(index, term, membership, content.body[FIELDS.size + length :])
    return snapshot, "one copy of the snapshot does not verify" if doubled.damage else ""
