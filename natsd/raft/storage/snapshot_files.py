"""The snapshots of the groups: one file each, which holds its content twice.

    snapshots/<group, quoted>.<index>.<term>
    magic of a plain or an encrypted one │ index u64 · term u64 · length of the membership u32 ·
                                           membership · data; or all of that encrypted (sealing.py)

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
from natsd.raft.storage.sealing import LogKey, key_is_missing
from natsd.store.disk.disk import CommitJob, Disk
from natsd.store.disk.doubled_file import (
    Content,
    decode_doubled,
    encode_doubled,
    read_file,
    replace_file,
)
from natsd.store.disk.holes import is_unreadable

MAGIC = b"NATSDRSN"
SEALED_MAGIC = b"NATSDRSE"
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


def add_put(
    job: CommitJob, directory: Path, group: bytes, snapshot: Snapshot, key: LogKey | None
) -> None:
    """Add the steps that write a snapshot, encrypted if there is a key, and sync it."""
    path = snapshot_path(directory, group, snapshot.index, snapshot.term)
    job.put_file(path, _encoded(path, group, snapshot, key))
    job.sync_directory(directory)


def encrypt_snapshot(
    disk: Disk, directory: Path, group: bytes, snapshot: Snapshot, key: LogKey
) -> None:
    """Replace the file of a snapshot by an encrypted one. Blocks; raises `OSError`."""
    path = snapshot_path(directory, group, snapshot.index, snapshot.term)
    replace_file(disk, path, _encoded(path, group, snapshot, key))


def _encoded(path: Path, group: bytes, snapshot: Snapshot, key: LogKey | None) -> bytes:
    """Return all bytes of a snapshot's file."""
    membership = encode_membership(snapshot.membership)
    body = FIELDS.pack(snapshot.index, snapshot.term, len(membership)) + membership + snapshot.data
    magic = MAGIC
    if key is not None:
        magic, body = SEALED_MAGIC, key.sealed_snapshot(path, body)
    return encode_doubled(Content(magic, body, 1, group.decode("utf-8", "surrogateescape")))


def is_snapshot(disk: Disk, path: Path) -> bool:
    """Return whether a file holds a snapshot. Blocks; raises `OSError`."""
    content = decode_doubled(read_file(disk, path)).content
    return content is not None and content.magic in (MAGIC, SEALED_MAGIC)


def read_snapshot(
    disk: Disk, directory: Path, group: bytes, index: int, term: int, key: LogKey | None
) -> tuple[Snapshot | None, str]:
    """Return a group's snapshot, and what is wrong with its file.

    The snapshot is None if it is lost; it is there if only one of its two copies is. Blocks. Raises
    EncryptionError, and `OSError` unless the error says that the file is gone or unreadable.
    """
    if index == 0:
        return NOTHING, ""
    path = snapshot_path(directory, group, index, term)
    try:
        doubled = decode_doubled(read_file(disk, path))
    except FileNotFoundError:
        return None, "the snapshot is missing"
    except OSError as error:
        if not is_unreadable(error):
            raise
        return None, f"the snapshot cannot be read: {error}"
    content = doubled.content
    place = group.decode("utf-8", "surrogateescape")
    if content is None or content.place != place or content.magic not in (MAGIC, SEALED_MAGIC):
        return None, "the snapshot does not verify"
    body = _opened(path, content, key)
    found_index, found_term, length = FIELDS.unpack_from(body)
    if (found_index, found_term) != (index, term):
        return None, f"the snapshot is that of entry {found_index}, not {index}"
    membership = decode_membership(body[FIELDS.size : FIELDS.size + length])
    snapshot = Snapshot(index, term, membership, body[FIELDS.size + length :])
    return snapshot, "one copy of the snapshot does not verify" if doubled.damage else ""


def _opened(path: Path, content: Content, key: LogKey | None) -> bytes:
    """Return the body of a snapshot as it was before it was encrypted. Raises EncryptionError."""
    if content.magic == SEALED_MAGIC:
        if key is None:
            raise key_is_missing(path, path.parent.parent)
        return key.opened_snapshot(path, content.body)
    if key is not None:
        key.check_plain(path)
    return content.body
