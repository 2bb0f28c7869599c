"""What the entries of a batch mean (natsd/store/wal/format.py draws the bytes around them).

    kind            name             offset            data
    NORMAL, MEMBERSHIP  group, term  index             the entry's; replaces entries from there on
    MOVED_…         group, term      index             the entry's, written once more
    STATE           group            version           GroupState: 8 x u64
    FILES           -                oldest live       newest segment, the end of the segment
                                     segment           before this one, and the newest version
                                                       of a state
    TOUCHED         -                number of the     what the batch before this one wrote: for
                                     batch before      each group flags u8, name length u8,
                                                       first index u64, last index u64, name
    ROOM            -                size of the file  -
    FILL            -                -                 so much that END is in one sector
    END             -                the batch's       u32: number of sectors of the batch that are
                                     number            all zeros although they are written
    SEALED          -                its place among   records of the other kinds but FILL and END,
                                     those of a batch  encrypted (sealing.py); only in a segment of
                                                       version 2, where these are all there is

ROOM, in some batches, says how long the file was, with the space reserved in it, when the batch
before had been synced: a file that is shorter now was cut off.

TOUCHED begins every batch: if the batch before is damaged, it says who lost what. END ends every
batch: its last sector is never all zeros, and END tells how many of the others are.

A group's state counts by its version, which grows with every state that is written, of any group.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from natsd.raft.entry import Entry, EntryKind, HardState, Health
from natsd.store.wal.entries import decode_entries, encode_entries
from natsd.store.wal.format import (
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    ENTRY_HEADER_BYTES,
    SECTOR_BYTES,
    Batch,
)

LOG_MAGIC: Final = b"NATSDRFT"
STATE_MAGIC: Final = b"NATSDRST"
VERSION: Final = 1
SEALED_VERSION: Final = 2
"""Version of an encrypted segment."""

NORMAL: Final = 16
MEMBERSHIP: Final = 17
MOVED: Final = 2  # added to the kind of an entry that is written once more
STATE: Final = 20
FILES: Final = 21
TOUCHED: Final = 22
END: Final = 23
FILL: Final = 24
ROOM: Final = 25
SEALED: Final = 26
ENTRY_KINDS: Final = range(NORMAL, NORMAL + 4)

TERM: Final = struct.Struct("<Q")
STATE_FIELDS: Final = struct.Struct("<7QB7x")
FILES_FIELDS: Final = struct.Struct("<QQQ")
TOUCHED_FIELDS: Final = struct.Struct("<BBQQ")
COUNT: Final = struct.Struct("<I")
END_BYTES: Final = ENTRY_HEADER_BYTES + COUNT.size
GROUP_BYTES_MAX: Final = 64
ZERO_SECTOR: Final = bytes(SECTOR_BYTES)

Record = tuple[int, bytes, int, bytes]  # kind, name, offset, data


class GroupState(NamedTuple):
    """What is known of a group beside its entries."""

    version: int
    replaced: int
    """Version of the state with which a snapshot replaced the whole log; older entries are void."""
    hard_state: HardState
    snapshot_index: int
    snapshot_term: int
    is_removed: bool = False


class Touch(NamedTuple):
    """The entries of one group that a batch wrote."""

    group: bytes
    is_moved: bool
    first: int
    last: int


class Files(NamedTuple):
    """Which segments of entries there are, and where the segment before this one ends."""

    oldest: int
    newest: int
    end_before: int
    """In the sequence that this is written to, the end of the segment before; 0: none."""
    version: int
    """Newest version of a state when this was written."""


def entry_records(group: bytes, entries: Sequence[Entry], moved: int = 0) -> list[Record]:
    """Return the records of entries; `moved` is MOVED if they were written before."""
    base = NORMAL + moved
    if entries[0].term == entries[-1].term:  # terms never fall, so all are equal
        name = group + TERM.pack(entries[0].term)
        return [(base + kind, name, index, data) for index, _, kind, data in entries]
    return [
        (base + kind, group + TERM.pack(term), index, data) for index, term, kind, data in entries
    ]


def read_entry(record: Record) -> tuple[bytes, Entry]:
    """Return the group and the entry of a record."""
    kind, name, index, data = record
    (term,) = TERM.unpack_from(name, len(name) - TERM.size)
    return name[: -TERM.size], Entry(index, term, EntryKind((kind - NORMAL) % MOVED), data)


def state_record(group: bytes, state: GroupState) -> Record:
    """Return the record of a group's state."""
    term, vote, health = state.hard_state
    fields = STATE_FIELDS.pack(
        state.version,
        state.replaced,
        term,
        vote,
        health,
        state.snapshot_index,
        state.snapshot_term,
        state.is_removed,
    )
    return STATE, group, state.version, fields


def read_state(data: bytes) -> GroupState:
    """Return the state of a group from the data of its record."""
    version, replaced, term, vote, health, index, snapshot_term, removed = STATE_FIELDS.unpack(data)
    hard_state = HardState(term, vote, Health(health))
    return GroupState(version, replaced, hard_state, index, snapshot_term, bool(removed))


def files_record(files: Files) -> Record:
    """Return the record that names the segments."""
    return FILES, b"", files.oldest, FILES_FIELDS.pack(*files[1:])


def read_files(oldest: int, data: bytes) -> Files:
    """Return the segments from the fields of their record."""
    return Files(oldest, *FILES_FIELDS.unpack(data))


def touched_record(number: int, touched: Iterable[Touch]) -> Record:
    """Return the record of what the batch of that number wrote."""
    data = b"".join(
        TOUCHED_FIELDS.pack(each.is_moved, len(each.group), each.first, each.last) + each.group
        for each in touched
    )
    return TOUCHED, b"", number, data


def touched_by(records: Iterable[Record]) -> list[Touch]:
    """Return what a batch of these records wrote."""
    found: list[Touch] = []
    for record in records:
        if record[0] in ENTRY_KINDS:
            group, (index, *_) = read_entry(record)
            is_moved, last = record[0] > MEMBERSHIP, found[-1] if found else None
            if last is not None and last == (group, is_moved, last.first, index - 1):
                found[-1] = last._replace(last=index)
            else:
                found.append(Touch(group, is_moved, index, index))
    return found


def read_touched(data: bytes) -> list[Touch]:
    """Return what the batch before wrote."""
    found, at = [], 0
    while at < len(data):
        is_moved, length, first, last = TOUCHED_FIELDS.unpack_from(data, at)
        at += TOUCHED_FIELDS.size
        found.append(Touch(data[at : at + length], bool(is_moved), first, last))
        at += length
    return found


def last_records(number: int, seed: int, encoded: bytes) -> tuple[int, bytes]:
    """Return how many records end a batch whose others are encoded, and their bytes."""
    count, filler = 1, b""
    at = (BATCH_HEADER_BYTES + len(encoded)) % SECTOR_BYTES
    if at + END_BYTES > SECTOR_BYTES:
        data = b"\xff" * max(0, SECTOR_BYTES - at - ENTRY_HEADER_BYTES)
        count, filler = 2, encode_entries(seed, [(FILL, b"", 0, data)])
    zeros = 0
    if ZERO_SECTOR in encoded:
        zeros = count_zero_sectors(BATCH_MAGIC.ljust(BATCH_HEADER_BYTES) + encoded + filler)
    end = encode_entries(seed, [(END, b"", number, COUNT.pack(zeros))])
    return count, filler + end


def read_end(seed: int, data: bytes, batch: Batch) -> int | None:
    """Return the number of sectors that END names; None: it does not verify."""
    at = batch.offset + batch.size - END_BYTES  # as if a batch with this one entry began there
    found = decode_entries(seed, data, at, END_BYTES)
    if len(found) != 1 or found[0][0] != END or found[0][2] != batch.number or not found[0][3]:
        return None
    return int(COUNT.unpack(found[0][3])[0])


def count_zero_sectors(data: bytes) -> int:
    """Return how many whole sectors are all zeros."""
    ends = range(SECTOR_BYTES, len(data) + 1, SECTOR_BYTES)
    return sum(data[end - SECTOR_BYTES : end] == ZERO_SECTOR for end in ends)
