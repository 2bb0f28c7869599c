"""FileStore: one stream's messages in the block files of one directory.

    <directory>/  000001.blk …   the messages (stored_blocks.py)
                  index.db       the content of the blocks as of some commit (index_db.py)
                  key.db         the stream's key, if it is encrypted (keys.py)

    MessageLog decides │ FileCommits makes changes durable │ Compactor does the background work │
    BlockCache reads blocks that are not in memory

Promise
- Everything that natsd.store.store.Store promises. `append` and reads from memory return at once;
  whatever waits for the disk is awaited and runs in the volume's threads.
- Memory does not grow with the data on disk: the blocks share the volume's cache budgets, and a
  block that is not in memory keeps only the set of its removed sequences.
- A long operation runs in slices, so that it does not hold the loop (log_store.py).
- Damage on disk is listed in `damage`, logged in one line each, and never served.
- A store with nothing to do has no task, no timer and no thread.

Source: nats-server's `fileStore` (server/filestore.go) for what the operations mean; docs/store.md
for durability.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from natsd.store.backup.frozen_store import FrozenStore, Moment
from natsd.store.block.blocks import MsgBlock, Scan
from natsd.store.block.mending import BYTES_MAX, image_of
from natsd.store.block.stored_blocks import NEW_SUFFIX, RandomBytes, Read, StoredBlock, StoredBlocks
from natsd.store.codec.records import StoredMessage
from natsd.store.commit.commits import FileCommits
from natsd.store.commit.committer import Sync
from natsd.store.commit.volume import Volume
from natsd.store.crypto.keys import (
    ENCRYPTING_FILE,
    KEY_FILE,
    OperatorKeys,
    create_data_key,
    open_data_key,
)
from natsd.store.disk.disk import UnsyncedRename, is_transient
from natsd.store.disk.doubled_file import read_file
from natsd.store.disk.twin_file import remove_twins, twins_exist
from natsd.store.errors import (
    MessageDamaged,
    MessageNotFound,
    StoreClosed,
    StoreError,
)
from natsd.store.log.message_log import EnforcePerSubjectLimit, MessageLog
from natsd.store.log_store import LogStore
from natsd.store.maintenance.background_jobs import BackgroundJobs
from natsd.store.maintenance.block_cache import BlockCache
from natsd.store.maintenance.block_repair import BlockRepair, Source
from natsd.store.maintenance.compaction import Compactor
from natsd.store.maintenance.encrypting import encrypt_plain
from natsd.store.maintenance.scrub import BlockScrub
from natsd.store.recovery.block_identity import find_store_id, place_of
from natsd.store.recovery.checkpoint_writer import CheckpointWriter
from natsd.store.recovery.found_damage import FoundDamage
from natsd.store.recovery.full_scan import Recovered, recover
from natsd.store.recovery.index_db import (
    INDEX_NAME,
    DamagedIndex,
    StoreImage,
    is_blank,
    make_blank,
    read_index,
    seed_of,
)
from natsd.store.recovery.index_recovery import recover_by_index
from natsd.store.sequence_set import SequenceSet
from natsd.store.store import DurabilityListener, Limits

LARGE_BLOCK_BYTES = 8 << 20
MEDIUM_BLOCK_BYTES = 4 << 20
ENCRYPTED_BLOCK_BYTES = 2 << 20
SMALL_BLOCK_BYTES = 32_000
BUFFERED_BYTES_MAX = 128 << 20
BUFFERED_MSGS_MAX = 100_000

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How a stream's files are kept."""

    block_bytes_max: int = 0  # 0: the size follows from the limits (`block_bytes_for`)
    compress: bool = False
    keys: OperatorKeys = field(default_factory=OperatorKeys)
    context: str = ""  # the stream's path in the store directory, which its key is bound to
    sync: Sync = Sync.AS_SET
    is_mirror: bool = False  # lost messages will be appended again, with the same sequences
    buffered_bytes_max: int = BUFFERED_BYTES_MAX  # uncommitted bytes before publishers must wait
    buffered_msgs_max: int = BUFFERED_MSGS_MAX  # the same limit in messages


def block_bytes_for(limits: Limits, options: FileOptions) -> int:
    """Return the size of a block in bytes, as nats-server's `dynBlkSize` does.

    Unlike there the size does not depend on the stream's retention.
    """
    if options.block_bytes_max:
        return options.block_bytes_max
    largest = ENCRYPTED_BLOCK_BYTES if options.keys.key is not None else LARGE_BLOCK_BYTES
    if limits.max_bytes <= 0:
        return largest
    quarter = limits.max_bytes // 4
    if quarter <= SMALL_BLOCK_BYTES:
        return SMALL_BLOCK_BYTES
    return min(largest, LARGE_BLOCK_BYTES if quarter >= LARGE_BLOCK_BYTES else MEDIUM_BLOCK_BYTES)


class FileStore(LogStore):
    """A stream's store in files; made by `open`, ended by `close`, `abandon` or `destroy`."""

    def __init__(
        self,
        volume: Volume,
        log: MessageLog,
        blocks: StoredBlocks,
        recovered: Recovered,
        options: FileOptions,
    ) -> None:
        super().__init__(log)
        self.damage = recovered.damage
        self._volume = volume
        self._blocks = blocks
        self._cache = BlockCache(volume, log, blocks, self._note_lost)
        self._jobs = BackgroundJobs(blocks.directory)
        self._care = Compactor(
            volume, log, blocks, self._cache, self._jobs, compress=options.compress
        )
        self._repair = BlockRepair(volume, log, blocks, self._care, self.damage)
        self._cache.repair = self._repair.mend
        self.scrub = BlockScrub(volume, blocks, self._cache, self._care, self._repair, self.damage)
        self._commits = FileCommits(
            volume,
            log,
            blocks,
            self._care,
            number=recovered.commit_number,
            buffered_bytes_max=options.buffered_bytes_max,
            buffered_msgs_max=options.buffered_msgs_max,
        )
        self._index = CheckpointWriter(
            volume,
            log,
            blocks,
            self._commits,
            self.damage,
            asyncio.get_running_loop().time,
            is_there=recovered.used_index,
        )
        self._make_frozen = partial(
            FrozenStore, volume, log, blocks, self._commits, self._care, self._cache.reread
        )
        self._care.commits, self._care.index = self._commits, self._index
        self.changed = self._commits.changed  # type: ignore[method-assign]  # saves a call
        volume.committer.attach(self._commits, sync=options.sync)

    @classmethod
    async def open(
        cls,
        volume: Volume,
        directory: Path,
        limits: Limits,
        random_bytes: RandomBytes,
        options: FileOptions | None = None,
    ) -> Self:
        """Open the store in that directory, or create it if there is none.

        Raises StoreError or `OSError`.
        """
        chosen = options or FileOptions()
        blocks, recovered = await volume.read(
            _open_files, volume, directory, limits, random_bytes, chosen
        )
        for damage in recovered.damage:
            _logger.error("%s", damage)
        if not chosen.is_mirror:
            recovered.skip_lost()
        log = MessageLog(
            limits, lambda base: blocks.create(base, log.last_time_ns, log.last_sequence)
        )
        if recovered.blocks or recovered.last_sequence:
            _adopt(log, recovered)
        store = cls(volume, log, blocks, recovered, chosen)
        await store._begin(recovered)
        return store

    async def _begin(self, recovered: Recovered) -> None:
        """Start the work that recovery has left."""
        for stored in recovered.blocks[:-1]:
            self._cache.held(stored.block)
        damaged = {each.path for each in recovered.damage}
        for stored in recovered.blocks[:-1]:
            # An earlier process may have ended before it marked the block as followed.
            if not (stored.is_followed or stored.path in damaged):
                self._jobs.later(partial(self._care.note_followed, stored))
        await self._settle_recovered(recovered)
        if recovered.unfinished_erasures:
            number = self._commits.number
            self._commits.erasing.add(number)
            self._jobs.later(partial(self._care.erase, recovered.unfinished_erasures, number))
        if recovered.blocks and not recovered.used_index:
            self._jobs.later(self._index.write)
        if self._log.is_behind:
            self._settle_soon()

    async def _settle_recovered(self, recovered: Recovered) -> None:
        """Commit the state that a crash left, now or later.

        If space, a descriptor or memory is lacking, the commit follows later. Meanwhile the stream
        can be read and takes no messages.
        """
        try:
            await self._commit_recovered(recovered)
        except StoreError as error:
            if not is_transient(error):
                raise
            _logger.warning("%s: opened, to be written to later: %s", self._blocks.directory, error)
            self._jobs.later(partial(self._commit_recovered, recovered))

    async def _commit_recovered(self, recovered: Recovered) -> None:
        """Commit the recovered state, and remove files that recovery found empty."""
        if recovered.blocks and not recovered.is_closed:
            await self._commits.mark()
            if self._log.limits.max_msgs_per_subject > 0:
                # A crash may leave messages that exceed the limit of their subject. They go first:
                # otherwise the stream's own limits would remove other messages instead.
                await self.run(EnforcePerSubjectLimit(self._log))
        if recovered.empty:  # empty by the recovered state, which is committed now
            await self._commits.settled()
            await self._volume.unlink(*recovered.empty)

    # Methods that LogStore calls

    async def fetch(self, block: MsgBlock) -> None:
        """Load the block into memory; see LogStore."""
        await self._cache.warm(block)

    async def synced(self) -> None:
        """Wait until all changes so far are durable; see Store.

        Raises StoreFull or StoreReadOnly if they could not be written.
        """
        self._check_open()
        await self._commits.synced()

    def write_behind(self) -> None:
        """Collect changes before they are written; see LogStore."""
        self._commits.write_behind()

    def set_durability_listener(self, listener: DurabilityListener | None) -> None:
        """Register the listener for new durable sequences; see Store."""
        self._commits.listener = listener

    @property
    def durable_sequence(self) -> int:
        """Last sequence up to which all messages are durable; see Store."""
        return self._commits.durable_sequence

    @property
    def write_error(self) -> StoreError | None:
        """Why nothing can be written at the moment, or None; see LogStore."""
        return self._commits.error

    @property
    def failures(self) -> int:
        """Number of times that changes were taken back because they could not be written."""
        return self._commits.failures

    async def undo(self, error: StoreError) -> None:
        """Undo all changes that no commit has taken; see LogStore."""
        self._check_open()
        await self._commits.pause()  # a commit that was taken before is written
        try:
            self._commits.failed(error)
            if self._commits.error is None:  # otherwise the committer resumes, once there is space
                self._commits.resumed()
        finally:
            self._commits.resume()

    @property
    def is_over_limit(self) -> bool:
        """Whether more data is uncommitted than may be; see Store."""
        return self._commits.is_over_limit

    async def room(self) -> None:
        """Wait until no more data is uncommitted than may be; see Store."""
        self._check_open()
        await self._commits.room()

    async def truncate(self, sequence: int) -> None:
        """Remove all messages above `sequence`; see Store.

        The removed sequences will be used again, so all earlier changes are made durable first.
        """
        self._check_open()
        await self._commits.synced()
        await super().truncate(sequence)

    async def cut(self, sequence: int) -> None:
        """End the log at `sequence` once all changes are committed; see LogStore.

        The blocks behind are removed, the last one is rewritten.
        """
        while not self._commits.log_commits.is_quiet:
            await self.synced()
        beyond, cut = self._commits.log_commits.cut(sequence)
        await self._jobs.in_turn(partial(self._care.cut, beyond, cut, sequence))

    def set_compression(self, compress: bool) -> None:
        """Set whether blocks that become full from now on are compressed."""
        self._care.compress = compress

    # Reading

    def load_cached(self, sequence: int) -> StoredMessage | None:
        """Return a message from memory; see Store. Raises MessageDamaged for a damaged one."""
        try:
            return self._log.load(sequence)
        except MessageNotFound:
            self._check_damage(sequence)
            raise

    async def load(self, sequence: int) -> StoredMessage:
        """Return a message, from disk if necessary; see Store.

        Raises MessageDamaged for a damaged message.
        """
        try:
            return await super().load(sequence)
        except MessageNotFound:
            self._check_damage(sequence)
            raise

    async def write_index(self) -> None:
        """Write index.db now, as of the next commit; raise StoreError or `OSError`."""
        self._check_open()
        await self._index.write()

    async def freeze(self, directory: Path, at_moment: Moment = lambda: None) -> FrozenStore:
        """Return a frozen view of the store as of one commit; the caller must release it.

        The view is kept in `directory`, which is created; it must be in this volume's file system.
        `at_moment` is called exactly when the view's content is fixed. Raises StoreError or
        `OSError`.
        """
        self._check_open()
        frozen = self._make_frozen(directory, at_moment)
        try:
            await self._jobs.in_turn(frozen.take)
        except BaseException:
            await frozen.release()
            raise
        return frozen

    # Damage

    def repair_from(self, source: Source | None) -> None:
        """Repair damaged blocks with the messages that `source` yields; None: do not."""
        self._repair.source = source

    async def intact(self, sequences: SequenceSet) -> AsyncGenerator[bytes]:
        """Yield closed blocks with those of the messages that are here and verify.

        Messages that were removed only lately are among them: the other replica may not know yet.
        Damage is not repaired, since this is part of a repair elsewhere. Raises OSError.
        """
        for block in list(self._log.all_blocks):
            wanted = SequenceSet()
            if block.base_sequence <= block.last_sequence:
                wanted.add_range(block.base_sequence, block.last_sequence)
                wanted.intersection_update(sequences)
            stored = self._blocks.find(block.block_id)
            if not wanted or stored is None or stored.block is not block:
                continue
            images = [await self._intact_in_memory(block, wanted)]
            if wanted:
                async with stored.lock:
                    end, size = stored.physical_end, block.durable_size
                    images.append(
                        await self._volume.read(self._intact_in_file, stored, end, size, wanted)
                    )
            for image in filter(None, images):
                yield image

    async def _intact_in_memory(self, block: MsgBlock, wanted: SequenceSet) -> bytes:
        """Return a closed block with those of the messages that are in memory; take them out."""
        if not (block.has_cache and block.has_arrays):
            return b""
        live = wanted.copy()
        live.difference_update(self._log.dead)
        try:
            image = await self._volume.read(image_of, block, live)
        except StoreError:  # it has left the memory meanwhile
            return b""
        wanted.difference_update(SequenceSet(Scan(image).sequences()) if image else SequenceSet())
        return image

    def _intact_in_file(
        self, stored: StoredBlock, physical_end: int, size: int, wanted: SequenceSet
    ) -> bytes:
        """Return a closed block with those of the messages that verify. Blocks on the disk."""
        try:
            scan = self._blocks.read(stored, physical_end, size).scan
        except OSError as error:
            if is_transient(error):
                raise
            return b""
        return image_of(MsgBlock.from_scan(scan, BYTES_MAX), wanted)

    def _note_lost(self, stored: StoredBlock, read: Read, lost: list[int]) -> None:
        """Note and log the damage of a block that verified when it was opened."""
        for found in read.damage:
            damage = FoundDamage(stored.path, *found)
            if damage not in self.damage:
                self.damage.append(damage)
                _logger.error("%s", damage)

    def _check_damage(self, sequence: int) -> None:
        """Raise MessageDamaged if a message of this sequence was lost to damage."""
        for found in self.damage:
            if found.covers(sequence):
                raise MessageDamaged(sequence, str(found.path), found.offset)

    # The end

    async def close(self) -> None:
        """Make everything durable, write index.db and close the files.

        A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        self._log.refuse_changes(StoreClosed)
        if self._settling is not None:
            await self._settling
        try:
            if self._commits.error is None:  # after an error only durable data is left
                await self._commits.close()
            await self._jobs.finished()
            if self._blocks.all and self._commits.error is None:
                await self._index.write()
        finally:
            await self._let_go()

    async def _let_go(self) -> None:
        """Close the files and leave the committer."""
        await self._cache.close()
        await self._repair.finished()
        for stored in self._blocks.all:
            if stored.file is not None:
                with contextlib.suppress(StoreError):
                    await self._volume.committer.settle(stored.file)
                await self._volume.committer.release(stored.file)
                stored.close()
        self._volume.committer.detach(self._commits)

    async def rename_removed(self, directory: Path) -> Path:
        """Rename the directory that holds this store, which is to be removed; return its new path.

        None of the store's files is written or replaced meanwhile. The store goes on until
        `abandon`. See `disk.rename_removed` for the errors.
        """
        renamed: list[Path] = []

        async def rename() -> None:
            await self._commits.pause()
            try:
                renamed.append(await self._volume.rename_removed(directory))
            except UnsyncedRename as error:
                self._volume.committer.refuse(self._commits, error)
                raise
            finally:
                self._commits.resume()

        await self._jobs.in_turn(rename)
        return renamed[0]

    async def abandon(self) -> None:
        """Close the store without writing, since the caller removes its files; see LogStore."""
        if self._closed:
            return
        self._closed = True
        self._log.refuse_changes(StoreClosed)
        if self._settling is not None:
            await self._settling
        with contextlib.suppress(StoreError):
            await self._commits.pause()
        self._commits.give_up(StoreClosed())
        await self._jobs.finished()
        await self._cache.close()
        await self._repair.finished()
        for stored in self._blocks.all:
            if stored.file is not None:
                await self._volume.committer.release(stored.file)
                stored.close()
        self._volume.committer.detach(self._commits)

    async def destroy(self) -> None:
        """Close the store and remove its directory; see Store."""
        await self.abandon()
        await self._volume.remove_tree(self._blocks.directory)


def _open_files(
    volume: Volume,
    directory: Path,
    limits: Limits,
    random_bytes: RandomBytes,
    options: FileOptions,
) -> tuple[StoredBlocks, Recovered]:
    """Open or create the files of a store; recover their content. Blocks on the disk."""
    disk = volume.disk
    volume.make_directory(directory)
    is_new = all(name.endswith(NEW_SUFFIX) for name in disk.listdir(directory))
    if is_new:
        key = create_data_key(disk, directory, options.context, options.keys, random_bytes)
        make_blank(disk, directory)
    else:
        if options.keys.key is not None and not twins_exist(disk, directory / KEY_FILE):
            for note in encrypt_plain(disk, directory, options.context, options.keys, random_bytes):
                _logger.warning("%s", note)
        elif options.keys.key is not None and twins_exist(disk, directory / ENCRYPTING_FILE):
            remove_twins(disk, directory / ENCRYPTING_FILE)  # key.db holds its key
        opened = open_data_key(disk, directory, options.context, options.keys, random_bytes)
        for note in opened.notes if opened else ():
            _logger.warning("%s", note)
        key = opened.data_key if opened else None
    blocks = StoredBlocks(
        disk,
        directory,
        random_bytes,
        block_bytes_max=block_bytes_for(limits, options),
        data_key=key,
    )
    blocks.place = place_of(options.context)
    recovered = recover_files(blocks, with_subjects=True)
    blocks.store_id = blocks.store_id or int.from_bytes(random_bytes(8), "little")
    return blocks, recovered


def recover_files(blocks: StoredBlocks, *, with_subjects: bool = False) -> Recovered:
    """Return the content of the files, with the help of index.db where it can be believed.

    Without `with_subjects` the result's `subjects` are undefined if index.db was used. Blocks on
    the disk. Raises OSError.
    """
    image, subjects = _read_index(blocks)
    image = believed(blocks, image)
    known = subjects if with_subjects else []
    by_index = recover_by_index(blocks, image, known) if image else None
    return by_index or recover(blocks, image)


def believed(blocks: StoredBlocks, image: StoreImage | None) -> StoreImage | None:
    """Find the store id of the blocks; return `image`, or None if it is of another store.

    Blocks on the disk.
    """
    blocks.store_id = find_store_id(blocks, image)
    if image is None or image.store_id in (0, blocks.store_id):
        return image
    _logger.error("%s: of another stream; the blocks are scanned", blocks.directory / INDEX_NAME)
    return None


def _read_index(blocks: StoredBlocks) -> tuple[StoreImage | None, list[bytes]]:
    """Return the content of index.db and its encoded subjects; None if it has no valid content."""
    path = blocks.directory / INDEX_NAME
    data = read_file(blocks.disk, path) if blocks.disk.exists(path) else b""
    if is_blank(data):
        return None, []
    try:
        return read_index(data, blocks.seal(seed_of(data), 0))
    except DamagedIndex as error:
        _logger.warning("%s: %s; the blocks are scanned", path, error)
        return None, []


def _adopt(log: MessageLog, found: Recovered) -> None:
    """Put the recovered state into an empty log."""
    log.take_over(
        [stored.block for stored in found.blocks],
        found.subjects,
        found.dead,
        found.expiries,
        first_sequence=found.first_sequence,
        last_sequence=found.last_sequence,
        first_time_ns=found.first_time_ns,
        last_time_ns=found.last_time_ns,
        msgs=found.msgs,
        live_bytes=found.live_bytes,
    )
