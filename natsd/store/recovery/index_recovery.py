"""Opening a stream by its index.db: only the data written since then is read.

    blocks   │ 1 sealed │ 2 sealed │ 3 open ┆ new │ 4 new │
    index.db  as of commit N ───────────────▶┆
    read                 headers   │ all of them  │ all   │   and the old blocks from which messages
                                                              were removed since

Promise
- The result is that of a full scan (recovery.py), or None: then index.db describes other blocks
  than those on disk, or the result cannot be known without reading more. Where index.db and the
  blocks disagree, the blocks win.
- Time grows with the bytes written and removed since, and with the number of blocks and subjects.
- The result is on disk on return: the part of the newest block that index.db does not prove to be
  on disk is written again and synced (recovery.py). Nothing else is changed.
- Everything here blocks on the disk: call it in a thread.

Source: docs/store.md; nats-server's `recoverFullState` for the idea.
"""

import contextlib
from dataclasses import dataclass, field

from natsd.store.block.block_summary import BlockSummary
from natsd.store.block.blocks import MsgBlock
from natsd.store.block.stored_blocks import (
    WRAPPED,
    Read,
    StoredBlock,
    StoredBlocks,
    block_id_of,
    header_flags,
    header_seed,
    is_followed,
)
from natsd.store.disk.disk import DiskFile
from natsd.store.disk.holes import is_unreadable, read_around
from natsd.store.errors import DamagedEncoding
from natsd.store.log.message_log import (
    BlockShare,
    load_expiries,
    note_gaps,
    set_slots,
    unnote_removed,
)
from natsd.store.log.subjects import SubjectIndex, load_subjects
from natsd.store.recovery.block_identity import why_refused
from natsd.store.recovery.found_damage import decode_damage
from natsd.store.recovery.full_scan import (
    Recovered,
    drop_empty,
    read_block,
    settle_files,
    still_to_erase,
    stored_block,
)
from natsd.store.recovery.index_db import BlockImage, StoreImage
from natsd.store.sequence_set import SequenceSet

HEADER_BYTES = 64
MARK_BYTES = 104
_MARK_NUMBER = slice(48, 56)
_MARK_CHAIN = slice(88, 96)


class _Mismatch(Exception):
    """index.db and the blocks on disk do not fit together."""


@dataclass(slots=True)
class _Since:
    """The changes made by the commits after index.db."""

    removed: SequenceSet = field(default_factory=SequenceSet)
    erased: SequenceSet = field(default_factory=SequenceSet)
    floor: int = 0
    last_sequence: int = 0
    commit_number: int = 0
    is_closed: bool = False


def recover_by_index(
    blocks: StoredBlocks, image: StoreImage, subjects: list[bytes]
) -> Recovered | None:
    """Return the stream's state by its index.db, or None if index.db does not fit the blocks.

    `subjects` are the pieces of the subjects from index.db; without them the result's subjects are
    meaningless. Blocks on the disk. Raises `OSError`.
    """
    try:
        return _ByIndex(blocks, image).run(subjects)
    except (_Mismatch, DamagedEncoding):
        for stored in blocks.all:
            blocks.drop(stored)
        return None


class _ByIndex:
    """One attempt to open a stream by its index.db."""

    def __init__(self, blocks: StoredBlocks, image: StoreImage) -> None:
        self._blocks = blocks
        self._image = image
        self._since = _Since()
        self._dead = SequenceSet.decode(image.deleted)
        self._found = Recovered(used_index=True)

    def run(self, subjects: list[bytes]) -> Recovered:
        images = {each.block_id: each for each in self._image.blocks}
        if not images:
            raise _Mismatch
        names = self._blocks.disk.listdir(self._blocks.directory)
        ids = sorted(filter(None, map(block_id_of, names)))
        newest = max(images)
        if any(number < newest and number not in images for number in ids):
            raise _Mismatch
        to_read = [i for i in ids if i not in images or images[i].is_open or i == newest]
        reads = [(number, self._read(number, images.get(number))) for number in to_read]
        for number, read in reads:
            self._take_since(read, images.get(number))
        if reads and is_followed(reads[-1][1].scan.data):
            raise _Mismatch  # the newest block is missing
        self._check_since(reads, images)
        self._found.damage = decode_damage(self._image.damage, self._blocks.directory)
        self._load_subjects(subjects)
        stored = self._old_blocks(images, ids, to_read)
        stored += [self._read_block(number, read, images) for number, read in reads]
        stored.sort(key=lambda each: each.block.block_id)
        if reads and reads[-1][0] in images:
            number, read = reads[-1]
            self._found.synced_end = read.physical_offset(images[number].size)
        self._finish(stored, ids)
        return self._found

    # Blocks that commits after index.db wrote to

    def _read(self, number: int, image: BlockImage | None) -> Read:
        read = read_block(self._blocks, number, image=image)
        scan = read.scan
        if not scan.readable or scan.damage or scan.torn_commit or not scan.commit_number:
            raise _Mismatch
        if why_refused(scan, number, self._blocks.store_id):
            raise _Mismatch
        if image is None:
            return read
        if scan.seed != image.seed or scan.end < image.size:
            raise _Mismatch
        if scan.end == image.size and scan.commit_number != image.commit_number:
            raise _Mismatch
        return read

    def _take_since(self, read: Read, image: BlockImage | None) -> None:
        scan, since = read.scan, self._since
        start = image.size if image else 0
        for offset, erased, encoded in scan.tombstones:
            if offset >= start:
                removed = SequenceSet.decode(encoded)
                since.removed.union_update(removed)
                if erased:
                    since.erased.union_update(removed)
        since.floor = scan.first_sequence
        since.last_sequence = scan.last_sequence
        since.commit_number = scan.commit_number
        since.is_closed = scan.closed and not scan.torn_bytes

    def _check_since(self, reads: list[tuple[int, Read]], images: dict[int, BlockImage]) -> None:
        since, image = self._since, self._image
        if self._overlap(reads, images) or since.floor == 0:  # 0: the commit may be unfinished
            raise _Mismatch
        if since.commit_number < image.commit_number or since.last_sequence < image.last_sequence:
            raise _Mismatch  # the stream was cut back since, or these are other blocks
        if since.floor < image.first_sequence and image.message_count:
            since.floor = image.first_sequence

    def _overlap(self, reads: list[tuple[int, Read]], images: dict[int, BlockImage]) -> bool:
        """Return whether two blocks share a sequence, or one between them is missing.

        Blocks share a sequence after the stream was cut.
        """
        last = 0
        for number, read in reads:
            base = read.scan.base_sequence
            if base <= last or (number not in images and base <= self._image.last_sequence):
                return True
            if number not in images and read.scan.follows > max(last, self._image.last_sequence):
                return True
            last = read.scan.last_sequence
        return False

    def _load_subjects(self, pieces: list[bytes]) -> None:
        index = SubjectIndex(self._image.births)
        self._found.subjects = index
        if self._since.floor > self._image.last_sequence:
            return  # every message of index.db is gone
        for piece in pieces:
            load_subjects(index, piece)

    # Blocks that index.db describes

    def _old_blocks(
        self, images: dict[int, BlockImage], ids: list[int], to_read: list[int]
    ) -> list[StoredBlock]:
        old = []
        for number, image in sorted(images.items()):
            if number in to_read:
                continue
            if number not in ids:
                if image.message_count and self._since.floor <= image.last_sequence:
                    raise _Mismatch
                self._forget_block(image)
                continue
            stored = None if self._is_touched(image) else self._unread_block(image)
            old.append(stored or self._read_block(number, self._read(number, image), images))
        return old

    def _is_touched(self, image: BlockImage) -> bool:
        if self._since.floor > max(image.base_sequence, self._image.first_sequence):
            return True
        within = SequenceSet()
        if image.last_sequence >= image.base_sequence:
            within.add_range(image.base_sequence, image.last_sequence)
        within.intersection_update(self._since.removed)
        return bool(within)

    def _forget_block(self, image: BlockImage) -> None:
        """Subtract a block that was unlinked since index.db was written.

        Its messages' subjects are unknown, so this works only if the stream kept no message of
        index.db. Raises _Mismatch otherwise.
        """
        if image.message_count and self._since.floor <= self._image.last_sequence:
            raise _Mismatch
        self._found.msgs -= image.message_count
        self._found.live_bytes -= image.live_bytes

    def _unread_block(self, image: BlockImage) -> StoredBlock | None:
        """Return the block without reading it; None if it must be read.

        It must be read if it may be an older copy of itself. Raises _Mismatch if its header or its
        end shows that it is another block, or that it was cut.
        """
        path = self._blocks.path_of(image.block_id)
        with contextlib.closing(self._blocks.disk.open(path, write=False)) as file:
            header = read_around(file, HEADER_BYTES).data
            size = file.size()
            ends = ends_as(file, image)
        if header_seed(header) != image.seed:
            raise _Mismatch
        is_wrapped = bool(header_flags(header) & WRAPPED)
        if size < HEADER_BYTES or not (is_wrapped or ends):
            raise _Mismatch  # the file was cut, or is an older copy of itself
        if is_wrapped and not is_followed(header):
            return None
        block = MsgBlock.from_summary(self._summary(image), self._blocks.block_bytes_max)
        end = size if is_wrapped else image.size
        stored = StoredBlock(block, path, is_wrapped, end, end, is_named=True)
        stored.is_followed = is_followed(header)
        self._blocks.add(stored)
        return stored

    def _summary(self, image: BlockImage) -> BlockSummary:
        dead = SequenceSet()
        if image.last_sequence >= image.base_sequence:
            dead.add_range(image.base_sequence, image.last_sequence)
            below = self._image.first_sequence - 1
            dead.intersection_update(self._dead)
            if below >= image.base_sequence:
                dead.add_range(image.base_sequence, min(below, image.last_sequence))
        return BlockSummary(
            image.block_id,
            image.seed,
            image.base_sequence,
            image.last_sequence,
            image.size,
            image.commit_number,
            image.chain,
            image.last_checksum,
            image.message_count,
            image.live_bytes,
            True,
            dead.encode(),
            b"",
            (),
        )

    def _read_block(self, number: int, read: Read, images: dict[int, BlockImage]) -> StoredBlock:
        """Add a block that was read: a new one, or one that got or lost messages since index.db."""
        found, since, image = self._found, self._since, images.get(number)
        stored = stored_block(self._blocks, self._blocks.path_of(number), read)
        self._blocks.add(stored)
        block = stored.block
        old_size = image.size if image else 0
        found.unfinished_erasures.union_update(still_to_erase(stored, since.erased))
        if since.floor <= self._image.last_sequence:
            gone, gone_bytes = unnote_removed(
                block,
                found.subjects,
                since.removed,
                self._dead,
                self._image.first_sequence,
                since.floor,
                old_size,
            )
        elif image is not None:
            gone, gone_bytes = image.message_count, image.live_bytes
        else:
            gone = gone_bytes = 0
        removed = since.removed.copy()
        removed.union_update(self._dead)
        floor = max(since.floor, self._image.first_sequence)
        share = BlockShare(block, removed, floor, old_size)
        share.merge_into(found.subjects, found.expiries)
        found.msgs += share.count - gone
        found.live_bytes += share.live_bytes - gone_bytes
        found.last_time_ns = share.last_time_ns or found.last_time_ns
        return stored

    # The result

    def _finish(self, stored: list[StoredBlock], ids: list[int]) -> None:
        found, since, image = self._found, self._since, self._image
        found.blocks = stored
        found.msgs += image.message_count
        found.live_bytes += image.live_bytes
        found.commit_number = since.commit_number
        found.is_closed = since.is_closed
        found.last_sequence = since.last_sequence
        found.last_time_ns = max(found.last_time_ns, image.last_time_ns)
        load_expiries(found.expiries, image.expiries)
        self._blocks.next_id = max(self._blocks.next_id, max(ids, default=0) + 1)
        found.dead = self._dead
        self._note_dead(stored)
        if found.msgs == 0:
            found.first_sequence = max(found.last_sequence + 1, since.floor)
            found.last_sequence = found.first_sequence - 1
            found.dead.clear()
        else:
            start = max(image.first_sequence, since.floor)
            found.first_sequence = found.dead.next_absent(start) or start
            found.dead.discard_range(0, found.first_sequence - 1)
        found.first_time_ns = image.first_time_ns if image.message_count and found.msgs else 0
        drop_empty(self._blocks, found)
        self._let_go()
        if found.blocks:
            set_slots(found.blocks[-1].block, found.subjects)
        settle_files(self._blocks, found)

    def _note_dead(self, stored: list[StoredBlock]) -> None:
        """Add the sequences that were removed since, and the gaps between new messages."""
        since, image, dead = self._since, self._image, self._dead
        old = SequenceSet()
        if image.last_sequence:
            old.add_range(1, image.last_sequence)
        old.intersection_update(since.removed)
        dead.union_update(old)
        upto = since.last_sequence
        for each in reversed(stored):
            block = each.block
            first = max(block.base_sequence, image.last_sequence + 1)
            if upto < first:
                break
            note_gaps(block, first, upto, dead)
            upto = block.base_sequence - 1
        if upto > image.last_sequence:
            dead.add_range(image.last_sequence + 1, upto)

    def _let_go(self) -> None:
        """Drop all blocks but the last one from memory; a read loads them again."""
        for stored in self._found.blocks[:-1]:
            if stored.block.has_cache:
                stored.block.seal()
                stored.block.clear_cache()
                stored.block.drop_arrays()


def ends_as(file: DiskFile, image: BlockImage) -> bool:
    """Return whether a plain block ends with the mark that index.db recorded for it.

    A mark that cannot be read counts as another one; then all blocks are read. Raises `OSError`.
    """
    try:
        mark = file.pread(MARK_BYTES, image.size - MARK_BYTES)
    except OSError as error:
        if not is_unreadable(error):
            raise
        return False
    number, chain = image.commit_number.to_bytes(8, "little"), image.chain.to_bytes(8, "little")
    return mark[_MARK_NUMBER] == number and mark[_MARK_CHAIN] == chain
