"""What a stream of nats-server holds, found by reading all of its blocks once.

    index.db ──▶ removed messages ─┐
    blocks   ──▶ tombstones ───────┼─▶ present − removed: the live messages
             ──▶ present ──────────┘   last sequence, last time, damage

A tombstone can stand in any later block than its message: so nothing can be copied before all
blocks are read. Memory grows with the number of runs of sequences, not of messages.

Source: nats-server's `recoverMsgs`, `recoverFullState`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from natsd.store.nats_server.blocks import BlockFile, IndexFile
from natsd.store.nats_server.stream_files import (
    LoadedBlock,
    StreamFiles,
    Unusable,
    VerifiedBlock,
)
from natsd.store.recovery.found_damage import FoundDamage
from natsd.store.sequence_set import SequenceSet

SEQUENCE_LAST: Final = (1 << 62) - 1

Progress = Callable[[int], object]
"""Callback with a number of bytes that were read."""


@dataclass(slots=True)
class Survey:
    """The content of a stream's blocks; `blocks` are those that can be read.

    `damage` has one line for each thing that was lost or could not be verified, `notes` one line
    for each thing that is normal after a crash. `subjects` are all subjects, None: not known.
    """

    blocks: list[VerifiedBlock] = field(default_factory=list)
    present: SequenceSet = field(default_factory=SequenceSet)
    removed: SequenceSet = field(default_factory=SequenceSet)
    last_sequence: int = 0
    last_time_ns: int = 0
    subjects: set[bytes] | None = None
    damage: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """Number of live messages."""
        return self.present.count


def survey(files: StreamFiles, progress: Progress) -> Survey:
    """Read all blocks and the index of a stream. Raises Unusable if its directory is unreadable."""
    found, losses = Survey(), list[FoundDamage]()
    index = _index(files, found)
    blocks = files.blocks()
    last_checksum = None
    for at, (number, path) in enumerate(blocks):
        loaded = _load(files, number, path, found, is_last=at == len(blocks) - 1)
        progress(path.lstat().st_size)
        if loaded is None:
            losses.append(_whole_block(path, found.last_sequence + 1))
            continue
        block = loaded.file
        _close_losses(losses, block.first_sequence)
        losses += _losses(block, path, found.last_sequence)
        _add(found, block)
        found.blocks.append(VerifiedBlock(number, path, loaded.digest))
        last_checksum = number, block.last_checksum
    if index is not None:
        _add_index(
            found, index, is_current=last_checksum == (index.last_block, index.last_checksum)
        )
    _close_losses(losses, found.last_sequence + 1)
    known = found.removed.copy()
    known.union_update(found.present)
    found.present.difference_update(found.removed)
    found.damage += [str(_without_known(loss, known)) for loss in losses]
    if index is not None and last_checksum == (index.last_block, index.last_checksum):
        missing = index.messages - found.messages
        if missing > 0:
            found.damage.append(f"{files.directory}: {missing} messages are lost, by its index.db")
    return found


def _index(files: StreamFiles, found: Survey) -> IndexFile | None:
    try:
        return files.index()
    except Unusable as error:
        found.damage.append(f"{error}; removed messages are found in the blocks")
        return None


def _load(
    files: StreamFiles, number: int, path: Path, found: Survey, *, is_last: bool
) -> LoadedBlock | None:
    try:
        loaded = files.load(number, path)
    except Unusable as error:
        found.damage.append(f"{error}; the block {path.name} is left out")
        return None
    block = loaded.file
    found.damage += loaded.notes
    if block.torn_bytes and is_last:
        found.notes.append(
            f"{path}: {block.torn_bytes} bytes at the end were never completely written"
        )
    elif block.torn_bytes:
        found.damage.append(f"{path}: {block.torn_bytes} bytes at the end are no whole record")
    return loaded


def _add(found: Survey, block: BlockFile) -> None:
    """Add what a block holds."""
    block.add_sequences(found.present)
    found.removed.union_update(block.tombstones)
    for sequence, time_ns in (
        (block.last_sequence, block.last_time_ns),
        (block.last_tombstone, block.last_tombstone_ns),
    ):
        if sequence > found.last_sequence:
            found.last_sequence, found.last_time_ns = sequence, time_ns


def _add_index(found: Survey, index: IndexFile, *, is_current: bool) -> None:
    """Add what only the index tells; what it says about removed messages is true if it is old."""
    found.removed.union_update(index.removed)
    if index.last_sequence >= found.last_sequence:
        found.last_sequence, found.last_time_ns = index.last_sequence, index.last_time_ns
    if is_current:
        found.subjects = index.subjects


def _losses(block: BlockFile, path: Path, before: int) -> list[FoundDamage]:
    """Return the damage in a block; a last sequence of SEQUENCE_LAST: the end is not known yet."""
    return [
        FoundDamage(
            path,
            offset,
            length,
            max(last_before, before) + 1,
            first_behind - 1 if first_behind else SEQUENCE_LAST,
            "records damaged",
        )
        for offset, length, last_before, first_behind in block.damage
    ]


def _whole_block(path: Path, first: int) -> FoundDamage:
    size = path.lstat().st_size
    return FoundDamage(path, 0, size, first, SEQUENCE_LAST, "the block cannot be used")


def _close_losses(losses: list[FoundDamage], first_behind: int) -> None:
    """End the losses whose end was not known at the next sequence that is there."""
    if not first_behind:
        return
    for at, loss in enumerate(losses):
        if loss.last_sequence == SEQUENCE_LAST:
            losses[at] = _ending(loss, loss.first_sequence, first_behind - 1)


def _without_known(loss: FoundDamage, known: SequenceSet) -> FoundDamage:
    """Return the damage with the sequences that are lost: neither there nor known as removed."""
    first = known.next_absent(loss.first_sequence) or loss.first_sequence
    last = loss.last_sequence
    while last > first and last in known:
        last -= 1
    return _ending(loss, first, last)


def _ending(loss: FoundDamage, first: int, last: int) -> FoundDamage:
    if first > last:
        first = last = 0
    return FoundDamage(loss.path, loss.offset, loss.length, first, last, loss.what)
