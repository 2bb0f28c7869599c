"""The background work of a file store: unlink, seal, compress, erase and compact blocks.

    a commit is on disk ─▶ its blocks without a live message          unlinked
                           its full blocks                            marked as followed, cut to
                                                                      size, perhaps compressed
                           its erased messages                        overwritten
                           blocks that are mostly dead                rewritten without dead ones

Promise
- All work begins only after the commit that asks for it is on disk. It is done in jobs, one after
  another (background_jobs.py).
- A file is either replaced as a whole (`*.new`, synced, renamed, directory synced) or overwritten
  in place where overwriting is the purpose. Recovery understands what a crash in between leaves.
- A block's tombstone is dropped only together with the removed bytes. A rewritten block keeps its
  tombstones for older blocks; the tombstones of a dropped block are committed again before.
- What a failed job leaves undone is finished by recovery. The store goes on, unless a sync failed:
  then it is read-only.
- A replaced file is the block's file from the rename on. So nothing is appended to a file without a
  name, and no old offset is used in a new file.
- While a FrozenStore reads the files, nothing is overwritten in place. While a block is being read
  into memory, its file does not change.
"""

import asyncio
import contextlib
from collections.abc import Collection
from functools import partial

from natsd.store.block.blocks import MsgBlock, Scan, rewrite
from natsd.store.block.stored_blocks import (
    HEADER_BYTES,
    Read,
    StoredBlock,
    StoredBlocks,
    encode_flags,
    with_flags,
)
from natsd.store.codec.records import OVERHEAD_BYTES
from natsd.store.commit.commits import Durable, FileCommits
from natsd.store.commit.volume import Volume
from natsd.store.disk.disk import DiskFile, UnsyncedRename
from natsd.store.errors import StoreReadOnly
from natsd.store.log.message_log import MessageLog, look_up_slots
from natsd.store.log.subjects import SubjectIndex
from natsd.store.maintenance.background_jobs import RETRY_S, BackgroundJobs
from natsd.store.maintenance.block_cache import BlockCache
from natsd.store.recovery.checkpoint_writer import CheckpointWriter
from natsd.store.sequence_set import SequenceSet

SMALL_BLOCK_BYTES = 64 << 10  # a rewrite of a smaller block saves less than it costs


class Compactor:
    """The background worker of one FileStore.

    FileStore makes it, sets `commits` and `index` right after that, and keeps it while it is open.
    """

    commits: FileCommits
    index: CheckpointWriter

    def __init__(
        self,
        volume: Volume,
        log: MessageLog,
        blocks: StoredBlocks,
        cache: BlockCache,
        jobs: BackgroundJobs,
        *,
        compress: bool,
    ) -> None:
        self._volume = volume
        self._log = log
        self._blocks = blocks
        self._cache = cache
        self.compress = compress  # whether blocks are compressed when they become full
        self._jobs = jobs
        self._looks_for_sparse = False
        self._forgets = False
        self._holders = 0
        self._postponed: list[tuple[SequenceSet, int]] = []

    def on_disk(self, durable: Durable) -> None:
        """Start the work that depends on this commit, which is on disk now."""
        for stored in durable.gone:
            self._blocks.drop(stored)
            self._cache.release(stored.block)
        if durable.gone:
            self._jobs.later(partial(self._unlink, durable.gone))
        for stored in durable.full:
            if self._blocks.find(stored.block.block_id) is stored:
                self._jobs.later(partial(self.seal, stored))
        if durable.erased:
            self._jobs.later(partial(self.erase, durable.erased, durable.number))
        if durable.begins and not self.index.is_there:
            self._jobs.later(self.index.note_store)

    def committed(self) -> None:
        """Start writing index.db, compacting or forgetting subjects, if a commit made it due."""
        if self.index.is_due:
            self._jobs.later(self.index.write)
        if self._log.sparse and not self._looks_for_sparse:
            self._looks_for_sparse = True
            self._jobs.later(self._compact_sparse)
        if self._log.subjects.num_remembered and not self._forgets:
            self._forgets = True
            self._jobs.later(self._forget_subjects)

    async def _forget_subjects(self) -> None:
        """Forget some names of subjects without messages; a later job goes on with the rest."""
        self._forgets = self._log.subjects.forget_some()
        if self._forgets:
            self._jobs.later(self._forget_subjects)
            await asyncio.sleep(0)

    def hold_erasures(self) -> None:
        """Postpone all overwriting until `allow_erasures`, since a caller reads the files.

        Call it from a job, so that no erasure is running.
        """
        self._holders += 1

    def allow_erasures(self) -> None:
        """End one `hold_erasures`; the last one to end starts the postponed erasures."""
        self._holders -= 1
        if not self._holders:
            postponed, self._postponed = self._postponed, []
            for sequences, number in postponed:
                self._jobs.later(partial(self.erase, sequences, number))

    async def _unlink(self, gone: list[StoredBlock]) -> None:
        """Close and remove the files of these blocks."""
        paths = [stored.path for stored in gone]
        await self._volume.committer.forget(*paths)
        for stored in gone:
            stored.close()
        await self._volume.read(self._blocks.remove_files, paths)

    # Blocks that are full

    async def seal(self, stored: StoredBlock) -> None:
        """End a full block whose successor is on disk.

        Its header then says that a newer block follows, reserved space is freed or the file is
        compressed, and the file is closed.
        """
        if not self.is_full(stored):
            return
        await self._volume.committer.forget(stored.path)
        if not self.is_full(stored):
            return
        stored.block.seal()
        stored.is_followed = True
        try:
            if self.compress and stored.block.has_cache:
                await self.rewrite_file(stored, stored.block, stored.block.durable_bytes())
            else:
                async with stored.lock:
                    await self._volume.read(self._end_file, stored)
        finally:
            stored.close()
            self._cache.held(stored.block)

    async def note_followed(self, stored: StoredBlock) -> None:
        """Write into a block's header that a newer block is on disk."""
        if self._blocks.find(stored.block.block_id) is stored and not self._jobs.is_closing:
            stored.is_followed = True
            async with stored.lock:
                await self._volume.read(self._end_file, stored)
                stored.close()

    def _end_file(self, stored: StoredBlock) -> None:
        """Free the reserved space of a full block and mark it as followed.

        The header is not synced: it outlives the process, and after a few seconds a power cut.
        Blocks on the disk.
        """
        if stored.file is None:
            stored.file = self._blocks.disk.open(stored.path)
        if stored.allocated > stored.physical_end:
            stored.file.truncate(stored.physical_end)
            stored.allocated = stored.physical_end
        self._note_followed(stored, stored.file)

    def _note_followed(self, stored: StoredBlock, file: DiskFile) -> None:
        """Write into the file's header whether a newer block has been on disk.

        Blocks on the disk.
        """
        header = file.pread(HEADER_BYTES, 0)
        changed = with_flags(header, encode_flags(stored.is_wrapped, stored.is_followed))
        if changed != header:
            file.pwrite(changed, 0)

    def is_full(self, stored: StoredBlock) -> bool:
        """Return whether the block is in use, not active, and completely committed."""
        block = stored.block
        return (
            self._blocks.find(block.block_id) is stored
            and block is not self._log.active
            and block.size == block.durable_size
        )

    def _lives(self, block: MsgBlock) -> bool:
        """Return whether the log still has the block.

        After `truncate`, a block beyond the cut has left the log, while its file exists for a
        little longer.
        """
        return block in self._log.all_blocks

    async def rewrite_file(
        self, stored: StoredBlock, block: MsgBlock, logical: bytes, *, wipe: bool = False
    ) -> bool:
        """Replace the file of this block by one with these logical bytes.

        The file is compressed and encrypted as due. With `wipe` the old file's bytes are
        overwritten. Return whether that was done: nothing changes if the block was replaced
        meanwhile. Raises StoreReadOnly, OSError.
        """
        encrypt = self._blocks.data_key is not None
        # A compressed block stays compressed, even if the stream's configuration changed since.
        compress = block.sealed and (self.compress or (stored.is_wrapped and not encrypt))
        async with stored.lock:
            if self._is_outdated(stored, block):
                return False
            size, unsynced = await self._volume.read(
                self._write_file, stored, block, logical, compress, wipe
            )
            stored.close()
            stored.is_wrapped = compress or encrypt
            stored.physical_end = stored.allocated = size
        await self._check_synced(unsynced)
        return True

    def _write_file(
        self, stored: StoredBlock, block: MsgBlock, logical: bytes, compress: bool, wipe: bool
    ) -> tuple[int, UnsyncedRename | None]:
        """Write the block's new file over the old one; return its size in bytes and a sync error.

        The sync error (None: none) says that the new name may not be on disk. The caller passes it
        to `_check_synced` after it has made the new file the block's file. Blocks on the disk.
        """
        is_followed = stored.is_followed
        data = self._blocks.sealed_bytes(logical, block, compress=compress, is_followed=is_followed)
        try:
            self._blocks.replace_file(stored.path, data, wipe=wipe)
        except UnsyncedRename as error:
            return len(data), error
        return len(data), None

    async def _check_synced(self, error: OSError | None) -> None:
        """Make the store read-only and raise StoreReadOnly if `error`, a failed sync, is given.

        A sync of a directory that was never begun, since a descriptor was lacking, is tried again.
        """
        while isinstance(error, UnsyncedRename) and not (error.was_tried or self._jobs.is_closing):
            await asyncio.sleep(RETRY_S)
            error = await self._volume.read(self._sync_directory)
        if error is not None:
            self._volume.committer.refuse(self.commits, error)
            raise StoreReadOnly(str(error))

    def _sync_directory(self) -> UnsyncedRename | None:
        """Sync the store's directory; return the error if that failed. Blocks on the disk."""
        try:
            self._blocks.disk.sync_dir(self._blocks.directory)
        except OSError as error:
            return UnsyncedRename(self._blocks.directory, error)
        return None

    # Erasing

    async def erase(self, sequences: SequenceSet, number: int) -> None:
        """Overwrite the bytes of these messages, whose removal is on disk with commit `number`."""
        if self._holders:
            self._postponed.append((sequences, number))
            return
        by_block: dict[int, list[int]] = {}
        for sequence in sequences:
            block = self._log.block_with(sequence)
            if block is not None and block.base_sequence <= sequence <= block.last_sequence:
                by_block.setdefault(block.block_id, []).append(sequence)
        for block_id, erased in by_block.items():
            stored = self._blocks.find(block_id)
            if stored is not None:
                await self._erase_in(stored, erased)
        await self._volume.committer.wipe_journal()
        self.commits.erasing.discard(number)

    async def _erase_in(self, stored: StoredBlock, sequences: list[int]) -> None:
        """Overwrite the bytes of these messages in one block, in memory and in its file."""
        while self._blocks.find(stored.block.block_id) is stored:
            block = stored.block
            if not (block.has_cache and block.has_arrays):
                await self._cache.warm(block)
            if block is self._log.active and not self._jobs.is_closing:
                # A crash may leave a half overwritten message. In the last commit, recovery would
                # take it for a torn end and cut it, so another commit must follow.
                await self.commits.mark()
            await self.commits.pause()
            try:
                if await self._erase_records(stored, block, sequences):
                    return
            finally:
                self.commits.resume()

    async def _erase_records(
        self, stored: StoredBlock, block: MsgBlock, sequences: list[int]
    ) -> bool:
        """Overwrite these messages; return False if the block was replaced before that."""
        await self._volume.committer.forget(stored.path)
        if stored.block is not block:
            return False
        records = [
            (block.offset_of(sequence), self._erased_record(block, sequence))
            for sequence in sequences
            if block.offset_of(sequence) and not block.is_live(sequence)
        ]
        if stored.is_wrapped:
            return await self.rewrite_file(stored, block, block.durable_bytes(), wipe=True)
        async with stored.lock:
            if stored.block is not block:
                return False
            error = await self._volume.read(self._overwrite, stored, records)
        await self._check_synced(error)
        return True

    def _erased_record(self, block: MsgBlock, sequence: int) -> bytes:
        """Return the record that overwrites a removed message, and put it into memory."""
        noise = self._blocks.random_bytes(block.record_bytes(sequence) - OVERHEAD_BYTES)
        return block.erase_record(sequence, noise)

    def _overwrite(self, stored: StoredBlock, records: list[tuple[int, bytes]]) -> OSError | None:
        """Overwrite these records and sync the file; return the sync's error, None if it worked.

        The caller passes the error to `_check_synced`. Blocks on the disk.
        """
        with contextlib.closing(self._blocks.disk.open(stored.path)) as file:
            for offset, record in records:
                file.pwrite(record, offset)
            return _sync_error(file)

    # Rewriting

    async def _compact_sparse(self) -> None:
        """Compact the blocks that are mostly dead and large enough to be worth a rewrite."""
        self._looks_for_sparse = False
        for block in list(self._log.sparse):
            stored = self._blocks.find(block.block_id)
            if self._jobs.is_closing or stored is None or stored.block is not block:
                continue
            worth_it = min(SMALL_BLOCK_BYTES, block.max_bytes // 4)
            if block.durable_size >= worth_it or block.message_count == 0:
                await self._compact(stored)
        self._log.sparse.clear()

    async def _compact(self, stored: StoredBlock) -> None:
        """Rewrite a block without its dead messages; remove it if it has no live message."""
        block = stored.block
        floor = self._log.first_sequence
        dead = _within(self._log.dead, block)
        if floor > block.base_sequence:
            dead.add_range(block.base_sequence, min(floor - 1, block.last_sequence))
        await self.commits.synced()
        await self.commits.until_on_disk()
        read = await self._read(stored)
        if read.scan.damage:
            self._cache.read_again(block)
            return  # unless it is repaired, a damaged block is left as it is
        if not self.is_full(stored):
            return
        needed = _about_older(read.scan.tombstones, block.base_sequence, floor)
        if block.message_count == 0:
            await self._drop(stored, needed)
            return
        await self._rewrite(
            stored, read, dead, needed, block.last_sequence, floor, block.commit_number
        )

    async def _read(self, stored: StoredBlock) -> Read:
        """Read the block's file."""
        return await self._volume.read(
            self._blocks.read, stored, stored.physical_end, stored.block.durable_size
        )

    async def _drop(self, stored: StoredBlock, needed: list[tuple[bool, bytes]]) -> None:
        """Remove a block without a live message, after its tombstones are committed again."""
        for erased, encoded in needed:
            removals = self._log.erasures if erased else self._log.tombstones
            removals.union_update(SequenceSet.decode(encoded))
        block = stored.block
        first = max(self._end_before(block) + 1, self._log.first_sequence)
        if first <= block.last_sequence:
            # Recovery then knows that this block, and the gap in front of it, were not lost.
            self._log.tombstones.add_range(first, block.last_sequence)
        await self.commits.synced()
        await self.commits.until_on_disk()
        if stored.block.message_count == 0 and self.is_full(stored) and self._lives(stored.block):
            self._log.drop_block(stored.block)
            self._blocks.drop(stored)
            self._cache.release(stored.block)
            await self._unlink([stored])

    def _end_before(self, block: MsgBlock) -> int:
        """Return the last sequence of the block in front of this one."""
        blocks = self._log.all_blocks
        place = blocks.index(block) if block in blocks else 0
        return blocks[place - 1].last_sequence if place else block.base_sequence - 1

    async def _rewrite(
        self,
        stored: StoredBlock,
        read: Read,
        dead: SequenceSet,
        tombstones: Collection[tuple[bool, bytes]],
        last_sequence: int,
        floor: int,
        commit_number: int,
        *,
        is_cut: bool = False,
    ) -> None:
        """Replace the block's file by one without the `dead` messages, and the log's block with it.

        The new block ends with `last_sequence` and holds these `tombstones`. Nothing changes if the
        block was removed or cut off meanwhile.
        """
        old = stored.block
        compress = self.compress
        is_wrapped = compress or self._blocks.data_key is not None
        logical = await self._volume.read(
            partial(
                rewrite,
                read.scan,
                dead,
                seed=int.from_bytes(self._blocks.random_bytes(8), "little"),
                commit_number=commit_number,
                first_sequence=floor,
                last_sequence=last_sequence,
                tombstones=tombstones,
                flags=encode_flags(is_wrapped, stored.is_followed),
            )
        )
        new = await self.block_of(logical, old)
        await self._volume.committer.forget(stored.path)
        await self.replace_block(stored, old, new, logical, compress=compress, is_cut=is_cut)

    def commit_removals(self, block: MsgBlock) -> None:
        """Commit all removals up to the block's end again: their records may have been damaged."""
        removed = SequenceSet()
        if self._log.first_sequence <= block.last_sequence:
            removed.add_range(self._log.first_sequence, block.last_sequence)
            removed.intersection_update(self._log.dead)
        if removed:
            self._log.tombstones.union_update(removed)
            self._jobs.later(self.commits.mark)

    async def block_of(self, logical: bytes, old: MsgBlock) -> MsgBlock:
        """Return the block of these bytes, which are to replace those of `old`."""
        scan = await self._volume.read(_scan, logical, self._log.subjects)
        new = MsgBlock.from_scan(scan, old.max_bytes)
        new.seal()
        return new

    async def replace_block(
        self,
        stored: StoredBlock,
        old: MsgBlock,
        new: MsgBlock,
        logical: bytes,
        *,
        compress: bool,
        is_cut: bool = False,
    ) -> bool:
        """Replace the block's file by these bytes, and the log's block by the `new` one.

        `is_cut`: it is the active block, without the messages that `truncate` has removed. Return
        whether that was done: nothing changes if `old` was removed, replaced or cut off meanwhile.
        Raises StoreReadOnly, OSError.
        """
        async with stored.lock:
            if self._is_outdated(stored, old) or not (is_cut or self.is_full(stored)):
                return False
            size, unsynced = await self._volume.read(
                self._write_file, stored, new, logical, compress, False
            )
            if self._is_outdated(stored, old):
                return False  # its file will be removed
            for sequence in _within(self._log.dead, new):
                new.remove(sequence)
            for sequence in range(
                new.base_sequence, min(self._log.first_sequence, new.last_sequence + 1)
            ):
                new.remove(sequence)
            stored.close()
            self._log.replace_block(old, new)
            self._cache.release(old)
            stored.block, stored.is_wrapped = new, compress or self._blocks.data_key is not None
            stored.physical_end = stored.allocated = size
            self._cache.held(new)
        await self._check_synced(unsynced)
        return True

    def _is_outdated(self, stored: StoredBlock, block: MsgBlock) -> bool:
        """Return whether the block was removed or replaced, or cut off by `truncate`."""
        is_gone = self._blocks.find(block.block_id) is not stored or stored.block is not block
        return is_gone or not self._lives(block)

    # The end of the stream

    async def cut(self, beyond: list[MsgBlock], cut: MsgBlock | None, last_sequence: int) -> None:
        """Finish a `truncate`, in a job, after the removal of all above `last_sequence` is on disk.

        The blocks `beyond` are removed, and the block `cut` (None: none) is rewritten without the
        messages above `last_sequence`.

        First the header of the newest remaining block is changed, so that no header says that a
        removed block follows. Before the blocks go, their tombstones for other blocks are committed
        again. The newest block names the removed sequences, so it goes last.
        """
        active = self._log.active
        if beyond and active is not None:
            await self._note_newest(self._blocks[active])
        if cut is not None:
            stored = self._blocks[cut]
            block, read = stored.block, await self._read(stored)
            floor = self._log.first_sequence
            dead = _within(self._log.dead, block)
            needed = _about_older(read.scan.tombstones, block.base_sequence, floor)
            number = self.commits.number
            await self._rewrite(
                stored, read, dead, needed, last_sequence, floor, number, is_cut=True
            )
        self._log.tombstones.union_update(self._log.dead)
        await self.commits.mark()
        await self.commits.until_on_disk()
        for block in beyond:
            stored = self._blocks[block]
            self._blocks.drop(stored)
            self._cache.release(block)
            await self._unlink([stored])

    async def _note_newest(self, stored: StoredBlock) -> None:
        """Write into the block's header that no newer block exists, and sync it."""
        stored.is_followed = False
        await self._volume.committer.forget(stored.path)
        await self._check_synced(await self._volume.read(self._note_newest_synced, stored))

    def _note_newest_synced(self, stored: StoredBlock) -> OSError | None:
        """Write and sync the header; return the sync's error for `_check_synced`.

        Blocks on the disk.
        """
        with contextlib.closing(self._blocks.disk.open(stored.path)) as file:
            self._note_followed(stored, file)
            return _sync_error(file)


def _sync_error(file: DiskFile) -> OSError | None:
    """Sync the file; return the error if that failed, otherwise None."""
    try:
        file.fdatasync()
    except OSError as error:
        return error
    return None


def _within(sequences: SequenceSet, block: MsgBlock) -> SequenceSet:
    """Return those of the sequences that are in the block."""
    within = SequenceSet()
    if block.last_sequence >= block.base_sequence:
        within.add_range(block.base_sequence, block.last_sequence)
        within.intersection_update(sequences)
    return within


def _about_older(
    tombstones: list[tuple[int, bool, bytes]], base_sequence: int, floor: int
) -> list[tuple[bool, bytes]]:
    """Return what these tombstones say about sequences from `floor` to `base_sequence` - 1.

    Each result is a pair: whether the messages are to be erased, and an encoded SequenceSet.
    """
    needed = []
    for _, erased, encoded in tombstones:
        older = SequenceSet()
        if floor < base_sequence:
            older.add_range(floor, base_sequence - 1)
            older.intersection_update(SequenceSet.decode(encoded))
        if older:
            needed.append((erased, older.encode()))
    return needed


def _scan(logical: bytes, subjects: SubjectIndex) -> Scan:
    scan = Scan(logical)
    look_up_slots(scan, subjects)
    return scan
