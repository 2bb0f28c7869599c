"""Recovery of a stream's state by a full scan of its block files, whatever a crash left.

    newest block ──▶ scan ──▶ its removals, the floor ──▶ share of live messages ──▶ merged
                     scan ──▶      (in this order)        share                      (any order)
    oldest block ──▶ scan ──▶                             share
                     threads       one thread             threads                    one thread

Promise
- Only data that verifies is used. A removal counts if its commit does; the newest mark says where
  the stream begins. Bytes behind the last mark of the newest block were never acknowledged, and are
  cut.
- A file that holds another block than its name says, or another stream's, is not served
  (block_identity.py). Where a block begins behind the end of its predecessor, the sequences in
  between were removed, or lost: then they are damage too.
- A commit some of whose blocks were not written, since limits had emptied them, counts as a whole
  or not at all: without its last block its other blocks are `empty`.
- Bytes that do not verify, and that a block's successor or index.db proves to have been written,
  are damage: kept in `damage` with file, offset and sequences, and no message of them is served.
- Memory is bounded by WINDOW blocks, whatever the stream's size. Scans and shares run in threads
  and without the GIL.
- Nothing is cut before all was read. Leftovers of replacements (`*.new`) are removed.
- Messages that were to be overwritten are named in `unfinished_erasures`, unless index.db proves
  that they were: index.db is not written before that is on disk.
- The recovered data is on disk when `recover` returns. The process before may have ended after a
  sync that failed: then the page cache shows bytes that the disk does not have. The block before
  the newest was synced before the newest was made; so the newest is written again, to its end, and
  synced. The volume has synced all names by then. The caller unlinks the files in `empty`, once a
  mark is on disk.
- Everything here blocks on the disk: call it in a thread.

Source: docs/store.md.
"""

import contextlib
import os
from collections import deque
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from natsd.store.block.blocks import MsgBlock
from natsd.store.block.damage import Damage
from natsd.store.block.stored_blocks import (
    NEW_SUFFIX,
    Read,
    StoredBlock,
    StoredBlocks,
    block_id_of,
    header_seed,
    is_followed,
)
from natsd.store.codec.records import OVERHEAD_BYTES, erased
from natsd.store.disk.holes import read_all, write_again
from natsd.store.log.message_log import BlockShare, Expiries, note_gaps, set_slots
from natsd.store.log.subjects import SubjectIndex
from natsd.store.recovery.block_identity import why_refused
from natsd.store.recovery.found_damage import FoundDamage
from natsd.store.recovery.index_db import BlockImage, StoreImage
from natsd.store.sequence_set import SequenceSet

WINDOW = 8  # blocks that are read and summed up at a time
THREADS_MAX = 4
MESSAGE_BYTES_MIN = OVERHEAD_BYTES + 1  # bytes of a message with the shortest subject
TO_BE_CUT = -1  # value of `allocated` for a file with a torn end


@dataclass(slots=True)
class Recovered:
    """The recovered state, which a MessageLog takes over, and the work that is left."""

    store_id: int = 0  # see block_identity.py; 0: unknown
    blocks: list[StoredBlock] = field(default_factory=list)  # oldest first
    subjects: SubjectIndex = field(default_factory=SubjectIndex)
    dead: SequenceSet = field(default_factory=SequenceSet)
    expiries: Expiries = field(default_factory=Expiries)
    first_sequence: int = 0
    last_sequence: int = 0
    first_time_ns: int = 0
    last_time_ns: int = 0
    msgs: int = 0
    live_bytes: int = 0
    commit_number: int = 0
    used_index: bool = False
    is_closed: bool = False  # the store was closed cleanly: no mark needs to be written
    synced_end: int = 0  # bytes of the newest block's file that are known to be on disk
    damage: list[FoundDamage] = field(default_factory=list)
    unfinished_erasures: SequenceSet = field(default_factory=SequenceSet)
    empty: list[Path] = field(default_factory=list)  # files no longer needed, to be unlinked
    lost_upto: int = 0  # highest sequence that a lost newest block may have held; 0: none is lost

    def skip_lost(self) -> None:
        """Use up the sequences that a lost newest block may have held, so that none is reused."""
        if self.lost_upto <= self.last_sequence:
            return
        if self.msgs:
            self.dead.add_range(self.last_sequence + 1, self.lost_upto)
        else:
            self.first_sequence = self.lost_upto + 1
        self.last_sequence = self.lost_upto


def recover(blocks: StoredBlocks, image: StoreImage | None) -> Recovered:
    """Read all blocks and return the stream's state.

    `image` is the content of index.db, which proves what was written; None if no index.db verifies.
    Blocks on the disk. Raises `OSError`.
    """
    names = blocks.disk.listdir(blocks.directory)
    leftovers = [blocks.directory / name for name in names if name.endswith(NEW_SUFFIX)]
    blocks.remove_files(leftovers)
    ids = sorted(filter(None, map(block_id_of, names)), reverse=True)
    threads = min(THREADS_MAX, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads, thread_name_prefix="natsd-recovery") as pool:
        try:
            return _Recovery(blocks, image, pool).run(ids)
        except _CommitUnfinished as found:
            for stored in blocks.all:
                blocks.drop(stored)
            return _Recovery(blocks, image, pool, found.block_ids).run(ids)


class _CommitUnfinished(Exception):
    """The newest blocks, `block_ids`, belong to a commit whose last block was not written."""

    def __init__(self, block_ids: list[int]) -> None:
        super().__init__()
        self.block_ids = block_ids


class _Recovery:
    """One pass over the blocks, newest first."""

    def __init__(
        self,
        blocks: StoredBlocks,
        image: StoreImage | None,
        pool: ThreadPoolExecutor,
        unfinished: Collection[int] = (),
    ) -> None:
        self._blocks = blocks
        self._images = {i.block_id: i for i in image.blocks} if image else {}
        self._image = image if self._images else None
        self._note = None if self._images else image  # it only notes that there were blocks
        self._pool = pool
        self._removed = SequenceSet()
        self._erased = SequenceSet()
        self._unfinished = unfinished  # blocks of an unfinished commit, never acknowledged
        # The newest blocks, of a commit whose end has not been seen; None: it has been seen.
        self._open: list[int] | None = []
        self._floor = 0
        self._has_mark = False  # a newer block has a mark: older blocks were written to their end
        self._follows = 0  # the stream's last sequence when the block read before this one began
        self._newer_id = 0  # number of the block read before this one; 0: none was read
        self._unread: set[Path] = set()  # files that are not served
        self._upto = 0  # first sequence of the block read before this one; 0: none was read
        self._headless: Path | None = None  # the block read before, if its header is lost
        self._shares: deque[tuple[StoredBlock, int, Future[BlockShare]]] = deque()
        self._overwritten: list[tuple[Path, int, bytes]] = []  # file, offset, new record
        self._found = Recovered(store_id=blocks.store_id)

    def run(self, ids: list[int]) -> Recovered:
        """Read the blocks `ids`, newest first, and return the result."""
        found = self._found
        for block_id, read in self._reads(ids):
            if block_id in self._unfinished:
                found.empty.append(self._blocks.path_of(block_id))
                continue
            self._take(block_id, read)
            while len(self._shares) > WINDOW:
                self._merge()
        while self._shares:
            self._merge()
        if self._open and self._image is None:
            raise _CommitUnfinished(self._open)
        if self._open and self._image is not None:
            self._floor = self._floor or self._image.first_sequence
        self._note_unexplained(0)
        if self._image is not None and self._image.commit_number >= found.commit_number:
            self._note_lost(self._image, ids)
        if self._note is not None and self._note.commit_number and not found.blocks:
            self._note_lost_end(self._note.last_sequence, 0)
        self._blocks.next_id = max([self._blocks.next_id, *(i + 1 for i in ids)])
        self._finish()
        return found

    # Reading

    def _reads(self, ids: list[int]) -> Iterator[tuple[int, Read]]:
        """Yield the blocks that were read, in order.

        Blocks are read one at a time until one has a mark, then as many at once as there are
        threads.
        """
        ahead: deque[tuple[int, Future[Read]]] = deque()
        for block_id in ids:
            ahead.append((block_id, self._pool.submit(self._read, block_id, self._has_mark)))
            while ahead and (not self._has_mark or len(ahead) >= WINDOW // 2):
                number, read = ahead.popleft()
                yield number, read.result()
        for number, read in ahead:
            yield number, read.result()

    def _read(self, block_id: int, has_successor: bool) -> Read:
        return read_block(
            self._blocks,
            block_id,
            image=self._images.get(block_id),
            proven=-1 if has_successor else 0,
        )

    def _take(self, block_id: int, read: Read) -> None:
        scan = read.scan
        path = self._blocks.path_of(block_id)
        refused = why_refused(scan, block_id, self._blocks.store_id)
        if refused:
            self._note_unread(block_id, path, read, refused)
            return
        if not scan.readable or not (scan.commit_number or scan.end > 64):
            self._take_unreadable(block_id, path, read)
            return
        for _, is_erased, encoded in scan.tombstones:
            removals = self._erased if is_erased else self._removed
            removals.union_update(SequenceSet.decode(encoded))
        if not self._has_mark:
            self._found.commit_number = scan.commit_number
            self._found.is_closed = scan.closed and not scan.torn_bytes
        self._found.commit_number = max(self._found.commit_number, scan.commit_number)
        self._has_mark = True
        self._floor = self._floor or scan.first_sequence
        half_erased = self._note_damage(path, read)
        self._add(path, read, half_erased)

    def _take_unreadable(self, block_id: int, path: Path, read: Read) -> None:
        """Note a block that cannot be read.

        Either its first commit was never finished, or none of its bytes can be read any more.
        """
        image = self._images.get(block_id)
        if image is None and not self._has_mark and not read.holes_end:
            self._found.empty.append(path)
            return
        self._note_unread(block_id, path, read, "block unreadable")

    def _note_unread(self, block_id: int, path: Path, read: Read, what: str) -> None:
        image = self._images.get(block_id)
        first, last = (image.base_sequence, image.last_sequence) if image else (0, 0)
        size = len(read.scan.data)
        self._unread.add(path)
        self._found.damage.append(FoundDamage(path, 0, size, first, last, what))

    def _note_end(self, first_sequence: int) -> None:
        """Set the first lost sequence of the unread files that are newer than the newest block.

        They held messages from `first_sequence` on, or none.
        """
        damage = self._found.damage
        for place, each in enumerate(damage):
            if each.path in self._unread and not each.first_sequence:
                damage[place] = replace(each, first_sequence=first_sequence)

    def _note_lost_end(self, last_sequence: int, block_id: int, size: int = 0) -> None:
        """Report that the block after `block_id` was on disk and is lost.

        `block_id` 0: the lost block was the first one. `last_sequence` is the last sequence before
        the lost block, and `size` the size of the block before it, in bytes.
        """
        found, first = self._found, last_sequence + 1
        size_max = max(self._blocks.block_bytes_max, size)
        found.lost_upto = last_sequence + size_max // MESSAGE_BYTES_MIN
        found.is_closed = False  # the next mark says how far the stream had come
        self._blocks.next_id = max(self._blocks.next_id, block_id + 2)
        if self._unread:
            self._note_end(first)
            return
        path, what = self._blocks.path_of(block_id + 1), "block missing"
        for each in reversed(found.empty):  # it was taken for a block that had just begun
            if block_id_of(each.name) not in self._unfinished:
                found.empty.remove(each)
                path, what = each, "block unreadable"
                break
        found.damage.append(FoundDamage(path, 0, 0, first, found.lost_upto, what))

    def _note_unexplained(self, last_sequence: int, stored: StoredBlock | None = None) -> None:
        """Report sequences above `last_sequence` that are missing without a removal.

        They lie between the end of the next older block, `stored` (None: there is none), and the
        sequence that the block read last says the stream had reached before it.
        """
        found, first = self._found, max(last_sequence + 1, self._floor)
        if first > self._follows:
            return
        lost = SequenceSet()
        lost.add_range(first, self._follows)
        lost.difference_update(self._removed)
        lost.difference_update(self._erased)
        for each in found.damage:
            if each.first_sequence:
                lost.discard_range(each.first_sequence, each.last_sequence or self._follows)
        first, last = lost.first or 0, lost.last or 0
        if not first:
            return
        for place, each in enumerate(found.damage):
            number = block_id_of(each.path.name) or 0
            if each.path in self._unread and number < self._newer_id and not each.first_sequence:
                found.damage[place] = replace(each, first_sequence=first, last_sequence=last)
                return
        if stored is not None and stored.block.block_id == self._newer_id - 1:
            path, end, what = stored.path, stored.physical_end, "end of the block missing"
        else:
            path, end, what = self._blocks.path_of(self._newer_id - 1), 0, "block missing"
        found.damage.append(FoundDamage(path, end, 0, first, last, what))

    def _note_damage(self, path: Path, read: Read) -> list[Damage]:
        """Report the block's damage.

        Return the records whose overwriting was cut short, which are no damage.
        """
        half_erased = []
        for found in read.damage:
            is_one = found.first_sequence == found.last_sequence > 0
            if is_one and found.first_sequence in self._erased and read.unwrapped is None:
                half_erased.append(found)
            else:
                self._found.damage.append(FoundDamage(path, *found))
        return half_erased

    def _narrow_damage(self, base_sequence: int) -> None:
        """Correct the damage of the block without a header, now that the block before it is known.

        The block without a header begins at `base_sequence`.
        """
        damage = self._found.damage
        for place, found in enumerate(damage):
            if found.path == self._headless and 0 < found.first_sequence < base_sequence:
                first = min(base_sequence, found.last_sequence or base_sequence)
                damage[place] = replace(found, first_sequence=first)

    def _note_lost(self, image: StoreImage, ids: list[int]) -> None:
        """Report blocks that index.db lists and that are missing; their sequences count as used.

        Call it if no commit came after index.db.
        """
        found = self._found
        found.commit_number = max(found.commit_number, image.commit_number)
        found.last_time_ns = max(found.last_time_ns, image.last_time_ns)
        if image.last_sequence > found.last_sequence:
            if found.msgs:
                found.dead.add_range(found.last_sequence + 1, image.last_sequence)
            found.last_sequence = image.last_sequence
            found.is_closed = False  # the next mark says how far the stream had come
        lost = [each for each in found.damage if each.what == "block missing"]
        for block in image.blocks:
            if any(each.covers(block.last_sequence) for each in lost):
                continue
            if block.block_id not in ids and block.message_count:
                self._note_missing(block.block_id, block)

    def _note_missing(self, block_id: int, image: BlockImage) -> None:
        first = max(image.base_sequence, self._floor)
        path = self._blocks.path_of(block_id)
        self._found.damage.append(
            FoundDamage(path, 0, 0, first, image.last_sequence, "block missing")
        )

    # Live messages

    def _add(self, path: Path, read: Read, half_erased: list[Damage]) -> None:
        stored = stored_block(self._blocks, path, read)
        block, found = stored.block, self._found
        if read.scan.base_sequence and 0 < self._upto <= block.base_sequence:
            found.empty.append(path)  # the stream was truncated and went on in a newer block
            return
        self._look_for_end(block, read.scan.first_sequence)
        if self._headless is not None:
            self._narrow_damage(block.last_sequence + 1)
        self._headless = None if read.scan.base_sequence else path
        if self._newer_id:
            self._note_unexplained(block.last_sequence, stored)
        elif stored.is_followed:
            self._note_lost_end(block.last_sequence, block.block_id, block.size)
        else:
            self._note_end(block.last_sequence + 1)
        self._follows, self._newer_id = read.scan.follows, block.block_id
        self._blocks.add(stored)
        found.blocks.append(stored)
        self._finish_erasing(stored, half_erased)
        if not self._upto:
            found.last_sequence = block.last_sequence
        last = self._upto - 1 if self._upto else block.last_sequence
        within = SequenceSet()
        within.add_range(block.base_sequence, max(block.base_sequence, block.last_sequence))
        to_erase = within.copy()
        within.intersection_update(self._removed)
        to_erase.intersection_update(self._erased)
        found.unfinished_erasures.union_update(still_to_erase(stored, to_erase))
        within.union_update(to_erase)
        if 0 < self._upto <= block.last_sequence:
            within.add_range(self._upto, block.last_sequence)  # truncated, and used again
        self._upto = block.base_sequence
        future = self._pool.submit(BlockShare, block, within, self._floor)
        self._shares.append((stored, last, future))

    def _look_for_end(self, block: MsgBlock, floor: int) -> None:
        """Raise _CommitUnfinished if the newest blocks belong to a commit that did not end.

        That is so if sequences between them and this block are missing, which the commit left out
        (LogCommits.take_blocks).
        """
        if self._open is None:
            return
        if floor or block.block_id in self._images:
            if self._open and block.last_sequence + 1 < self._upto:
                raise _CommitUnfinished(self._open)
            self._open = None
        else:
            self._open.append(block.block_id)

    def _finish_erasing(self, stored: StoredBlock, half_erased: list[Damage]) -> None:
        block = stored.block
        for found in half_erased:
            noise = self._blocks.random_bytes(found.length - OVERHEAD_BYTES)
            record = erased(block.seed, found.first_sequence, noise)
            self._overwritten.append((stored.path, found.offset, record))
            block.forget_damage(found.offset)

    def _merge(self) -> None:
        stored, last, future = self._shares.popleft()
        share = future.result()
        found, block = self._found, stored.block
        share.merge_into(found.subjects, found.expiries)
        found.msgs += block.message_count
        found.live_bytes += block.live_bytes
        found.last_time_ns = found.last_time_ns or share.last_time_ns
        if share.first_sequence:
            found.first_sequence = share.first_sequence
            found.first_time_ns = share.first_time_ns
        if last >= block.base_sequence:
            note_gaps(block, block.base_sequence, last, found.dead)
        if stored is not found.blocks[0]:
            _let_go(block)

    def _finish(self) -> None:
        found = self._found
        found.blocks.reverse()
        if found.msgs == 0:
            found.first_sequence = max(found.last_sequence + 1, self._floor)
            found.last_sequence = found.first_sequence - 1
        drop_empty(self._blocks, found)
        if found.blocks:
            found.dead.discard_range(0, found.first_sequence - 1)
            if found.msgs == 0:
                found.dead.clear()
            newest = found.blocks[-1].block
            set_slots(newest, found.subjects)
            if found.lost_upto:  # then the stream goes on in another block
                _let_go(newest)
        settle_files(self._blocks, found)
        for path, offset, record in self._overwritten:
            with contextlib.closing(self._blocks.disk.open(path)) as file:
                file.pwrite(record, offset)
                file.fdatasync()


def still_to_erase(stored: StoredBlock, erased: SequenceSet) -> SequenceSet:
    """Return the block's messages that were to be overwritten and may still be on disk.

    A wrapped block is replaced as a whole, so only messages that are still in it count. In a plain
    block all count, since the overwriting that the page cache shows may have failed to be synced.
    """
    block = stored.block
    return SequenceSet(
        sequence
        for sequence in erased
        if block.is_live(sequence) or (block.offset_of(sequence) and not stored.is_wrapped)
    )


def _let_go(block: MsgBlock) -> None:
    """Drop the block from memory; a read loads it again."""
    block.seal()
    block.clear_cache()
    block.drop_arrays()


def read_block(
    blocks: StoredBlocks, block_id: int, *, image: BlockImage | None = None, proven: int = 0
) -> Read:
    """Read a block's file and verify it, whatever it holds.

    `image` is index.db's entry of that number; it is ignored if it is of another block. `proven` as
    in `StoredBlocks.scan`. Blocks on the disk. Raises `OSError`.
    """
    with contextlib.closing(blocks.disk.open(blocks.path_of(block_id), write=False)) as file:
        found = read_all(file)
    data, holes_end = found.data, found.holes_end
    if image is None or image.seed != (header_seed(data) or image.seed):
        return blocks.scan(data, block_id, proven=proven, holes_end=holes_end)
    return blocks.scan(
        data,
        block_id,
        proven=image.size if proven >= 0 else proven,
        size_min=image.size,
        first_sequence=image.base_sequence,
        holes_end=holes_end,
    )


def stored_block(blocks: StoredBlocks, path: Path, read: Read) -> StoredBlock:
    """Return the block that was read, with all of it in memory."""
    scan, unwrapped = read.scan, read.unwrapped
    is_torn = scan.torn_bytes or (unwrapped is not None and unwrapped.torn)
    end = max(read.physical_offset(scan.end), read.holes_end)  # nothing is written into a hole
    return StoredBlock(
        MsgBlock.from_scan(scan, blocks.block_bytes_max),
        path,
        unwrapped is not None or blocks.data_key is not None,
        physical_end=end,
        allocated=TO_BE_CUT if is_torn else end,
        is_named=True,
        is_followed=is_followed(scan.data),
    )


def drop_empty(blocks: StoredBlocks, found: Recovered) -> None:
    """Move blocks that end before the first message to `empty`; the last block stays."""
    keep = 0
    while keep + 1 < len(found.blocks) and (
        found.blocks[keep + 1].block.base_sequence <= found.first_sequence
    ):
        keep += 1
    for stored in found.blocks[:keep]:
        blocks.drop(stored)
        found.empty.append(stored.path)
    del found.blocks[:keep]


def settle_files(blocks: StoredBlocks, found: Recovered) -> None:
    """Sync the recovered bytes and cut the torn ends, which could verify by chance some day.

    The newest block is written again from `synced_end` on. Blocks on the disk. Raises `OSError`.
    """
    for stored in found.blocks:
        end = start = stored.physical_end
        if stored is found.blocks[-1]:
            start = min(found.synced_end, end)
        if start == end and stored.allocated != TO_BE_CUT:
            continue
        with contextlib.closing(blocks.disk.open(stored.path)) as file:
            if stored.allocated == TO_BE_CUT:
                file.truncate(end)
            write_again(file, start, end)
            file.fsync()
        stored.allocated = end
