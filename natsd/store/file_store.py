"""FileStore: one stream's messages in the block files of one directory.

    <directory>/  000001.blk …   the messages (stored_blocks.py)
                  index.db       what the blocks hold as of some commit (index_db.py)
                  key.db         the stream's key, where it is encrypted (keys.py)

    MessageLog decides │ FileCommits makes it durable │ BlockCare does what may wait │ BlockCache
    reads what is not in memory

Promise
- Everything of natsd.store.store.Store: `append` and the reads of what is in memory answer at once;
  what must wait for the disk is awaited, in the volume's threads.
- Memory does not grow with what is on disk: blocks share the volume's budgets, and a block that is
  out of memory keeps which of its sequences are gone.
- An operation that would hold the loop goes on in slices (log_store.py).
- What is damaged on disk is in `damage`, was logged in one line each, and is never served.
- A store with nothing to do has no task, no timer and no thread.

Source: nats-server's filestore for what the operations mean; "Durability" of the design.
"""

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from natsd.store.block import MsgBlock
from natsd.store.block_cache import BlockCache
from natsd.store.block_care import BlockCare
from natsd.store.block_identity import find_store_id, place_of
from natsd.store.committer import BUFFERED_BYTES_MAX, BUFFERED_MSGS_MAX, Sync
from natsd.store.disk import UnsyncedRename, is_passing
from natsd.store.doubled_file import read_file
from natsd.store.encrypting import encrypt_plain
from natsd.store.errors import (
    MessageDamaged,
    MessageNotFound,
    StoreClosed,
    StoreError,
)
from natsd.store.file_commits import FileCommits
from natsd.store.found_damage import FoundDamage
from natsd.store.frozen_store import FrozenStore, Moment
from natsd.store.index_db import (
    INDEX_NAME,
    DamagedIndex,
    StoreImage,
    is_blank,
    make_blank,
    read_index,
    seed_of,
)
from natsd.store.index_keeper import IndexKeeper
from natsd.store.index_recovery import recover_by_index
from natsd.store.journaled_log import JournaledLog
from natsd.store.keys import (
    ENCRYPTING_FILE,
    KEY_FILE,
    OperatorKeys,
    create_data_key,
    open_data_key,
)
from natsd.store.log_store import LogStore
from natsd.store.record import StoredMessage
from natsd.store.recovery import Recovered, recover
from natsd.store.removal import ThinSubjects
from natsd.store.store import DurabilityListener, Limits
from natsd.store.stored_blocks import NEW_SUFFIX, RandomBytes, Read, StoredBlock, StoredBlocks
from natsd.store.twin_file import remove_twins, twins_exist
from natsd.store.volume import Volume

LARGE_BLOCK_BYTES = 8 << 20
MEDIUM_BLOCK_BYTES = 4 << 20
ENCRYPTED_BLOCK_BYTES = 2 << 20
SMALL_BLOCK_BYTES = 32_000

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How a stream's files are kept. `block_bytes_max` 0: by the limits, as nats-server does."""

    block_bytes_max: int = 0
    compress: bool = False
    keys: OperatorKeys = field(default_factory=OperatorKeys)
    context: str = ""  # the stream's name, which its key is bound to
    sync: Sync = Sync.AS_SET
    is_mirror: bool = False  # what is lost is appended again, with the same sequences
    buffered_bytes_max: int = BUFFERED_BYTES_MAX  # that may wait to be written
    buffered_msgs_max: int = BUFFERED_MSGS_MAX


def block_bytes_for(limits: Limits, options: FileOptions) -> int:
    """The size of a block: nats-server 2.14 reference 11.2."""
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
    """Made by `open`; ended by `close`, `abandon` or `destroy`."""

    def __init__(
        self,
        volume: Volume,
        log: JournaledLog,
        blocks: StoredBlocks,
        recovered: Recovered,
        options: FileOptions,
    ) -> None:
        super().__init__(log)
        self.damage = recovered.damage
        self._volume = volume
        self._blocks = blocks
        self._cache = BlockCache(volume, log, blocks, self._note_lost)
        self._care = BlockCare(volume, log, blocks, self._cache, compress=options.compress)
        self._commits = FileCommits(volume, log, blocks, self._care, number=recovered.commit_number)
        self._index = IndexKeeper(
            volume,
            log,
            blocks,
            self._commits,
            self.damage,
            asyncio.get_running_loop().time,
            is_there=recovered.used_index,
        )
        self._make_frozen = partial(FrozenStore, volume, log, blocks, self._commits, self._care)
        self._care.commits, self._care.index = self._commits, self._index
        volume.committer.attach(
            self._commits,
            sync=options.sync,
            buffered_bytes_max=options.buffered_bytes_max,
            buffered_msgs_max=options.buffered_msgs_max,
        )

    @classmethod
    async def open(
        cls,
        volume: Volume,
        directory: Path,
        limits: Limits,
        random_bytes: RandomBytes,
        options: FileOptions | None = None,
    ) -> Self:
        """The store of that directory, new or as it was left. Raises StoreError, `OSError`."""
        chosen = options or FileOptions()
        blocks, recovered = await volume.read(
            _open_files, volume, directory, limits, random_bytes, chosen
        )
        for damage in recovered.damage:
            _logger.error("%s", damage)
        if not chosen.is_mirror:
            recovered.skip_lost()
        log = JournaledLog(
            limits, lambda base: blocks.create(base, log.last_time_ns, log.last_sequence)
        )
        if recovered.blocks or recovered.last_sequence:
            _adopt(log, recovered)
        store = cls(volume, log, blocks, recovered, chosen)
        await store._begin(recovered)
        return store

    async def _begin(self, recovered: Recovered) -> None:
        for stored in recovered.blocks[:-1]:
            self._cache.held(stored.block)
        damaged = {each.path for each in recovered.damage}
        for stored in recovered.blocks[:-1]:
            if not (stored.is_followed or stored.path in damaged):  # the process ended before that
                self._care.later(partial(self._care.note_followed, stored))
        await self._settle_recovered(recovered)
        if recovered.unfinished_erasures:
            number = self._commits.number
            self._commits.erasing.add(number)
            self._care.later(partial(self._care.erase, recovered.unfinished_erasures, number))
        if recovered.blocks and not recovered.used_index:
            self._care.later(self._index.write)
        if self._log.is_behind:
            self._settle_soon()

    async def _settle_recovered(self, recovered: Recovered) -> None:
        """Commit what a crash left; if that lacks space, a descriptor or memory, then later: the
        stream can be read meanwhile, and takes no messages."""
        try:
            await self._commit_recovered(recovered)
        except StoreError as error:
            if not is_passing(error):
                raise
            _logger.warning("%s: opened, to be written to later: %s", self._blocks.directory, error)
            self._care.later(partial(self._commit_recovered, recovered))

    async def _commit_recovered(self, recovered: Recovered) -> None:
        if recovered.blocks and not recovered.is_closed:
            await self._commits.mark()
            if self._log.limits.max_msgs_per_subject > 0:
                # A crash may leave messages without the removals that they asked for: were the
                # whole stream's limits first, they would take others instead.
                await self.run(ThinSubjects(self._log))
        if recovered.empty:  # by what was found, and the mark counts for that
            await self._commits.settled()
            await self._volume.unlink(*recovered.empty)

    # What a LogStore asks for

    async def fetch(self, block: MsgBlock) -> None:
        await self._cache.warm(block)

    def changed(self) -> None:
        self._commits.changed()

    async def synced(self) -> None:
        """See Store. Raises StoreFull or StoreReadOnly if what was done is not on disk."""
        self._check_open()
        await self._commits.synced()

    def set_durability_listener(self, listener: DurabilityListener | None) -> None:
        """See Store."""
        self._commits.listener = listener

    @property
    def durable_sequence(self) -> int:
        """See Store."""
        return self._commits.durable_sequence

    @property
    def write_error(self) -> StoreError | None:
        """See LogStore."""
        return self._commits.error

    @property
    def failures(self) -> int:
        """See LogStore."""
        return self._commits.failures

    @property
    def is_over_limit(self) -> bool:
        """See Store."""
        return self._volume.committer.is_over_limit(self._commits)

    async def room(self) -> None:
        """See Store."""
        self._check_open()
        await self._volume.committer.room(self._commits)

    async def truncate(self, sequence: int) -> None:
        """See Store. Sequences are used again: what was said of the old ones is on disk before."""
        self._check_open()
        await self._commits.synced()
        await super().truncate(sequence)

    async def drop_cut(self, beyond: list[MsgBlock], cut: MsgBlock | None, sequence: int) -> None:
        """The removal of all above `sequence` is on disk."""
        await self._care.cut(beyond, cut, sequence)

    def set_compression(self, compress: bool) -> None:
        """Whether blocks that become full from now on are compressed."""
        self._care.compress = compress

    # Reading

    def load_cached(self, sequence: int) -> StoredMessage | None:
        """See Store."""
        try:
            return self._log.load(sequence)
        except MessageNotFound:
            self._check_damage(sequence)
            raise

    async def load(self, sequence: int) -> StoredMessage:
        """See Store."""
        try:
            return await super().load(sequence)
        except MessageNotFound:
            self._check_damage(sequence)
            raise

    async def write_index(self) -> None:
        """Write index.db now, as of the next commit. Raises StoreError, `OSError`."""
        self._check_open()
        await self._index.write()

    async def freeze(self, directory: Path, at_moment: Moment = lambda: None) -> FrozenStore:
        """What there is as of one commit, held in `directory` (which is made, in this volume's
        file system) until it is released; `at_moment` is called in that very moment. Raises
        StoreError, `OSError`."""
        self._check_open()
        frozen = self._make_frozen(directory, at_moment)
        try:
            await self._care.in_turn(frozen.take)
        except BaseException:
            await frozen.release()
            raise
        return frozen

    # Trouble

    def _note_lost(self, stored: StoredBlock, read: Read, lost: list[int]) -> None:
        """Messages that were there when the block was opened, and do not verify any more."""
        for found in read.damage:
            damage = FoundDamage(stored.path, *found)
            if damage not in self.damage:
                self.damage.append(damage)
                _logger.error("%s", damage)

    def _check_damage(self, sequence: int) -> None:
        for found in self.damage:
            if found.covers(sequence):
                raise MessageDamaged(sequence, str(found.path), found.offset)

    # The end

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._log.refuse_changes(StoreClosed)
        if self._settling is not None:
            await self._settling
        try:
            if self._commits.error is None:  # else what there is, is durable
                await self._commits.close()
            await self._care.finished()
            if self._blocks.all and self._commits.error is None:
                await self._index.write()
        finally:
            await self._let_go()

    async def _let_go(self) -> None:
        await self._cache.close()
        for stored in self._blocks.all:
            if stored.file is not None:
                with contextlib.suppress(StoreError):
                    await self._volume.committer.settle(stored.file)
                await self._volume.committer.release(stored.file)
                stored.close()
        self._volume.committer.detach(self._commits)

    async def rename_removed(self, directory: Path) -> Path:
        """Volume.rename_removed of the directory that holds this store, while none of its files is
        written or replaced. The store goes on, until `abandon`."""
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

        await self._care.in_turn(rename)
        return renamed[0]

    async def abandon(self) -> None:
        """See LogStore."""
        if self._closed:
            return
        self._closed = True
        self._log.refuse_changes(StoreClosed)
        if self._settling is not None:
            await self._settling
        with contextlib.suppress(StoreError):
            await self._commits.pause()
        self._commits.give_up(StoreClosed())
        await self._care.finished()
        await self._cache.close()
        for stored in self._blocks.all:
            if stored.file is not None:
                await self._volume.committer.release(stored.file)
                stored.close()
        self._volume.committer.detach(self._commits)

    async def destroy(self) -> None:
        """See Store."""
        await self.abandon()
        await self._volume.remove_tree(self._blocks.directory)


def _open_files(
    volume: Volume,
    directory: Path,
    limits: Limits,
    random_bytes: RandomBytes,
    options: FileOptions,
) -> tuple[StoredBlocks, Recovered]:
    """Blocks."""
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
            remove_twins(disk, directory / ENCRYPTING_FILE)  # its key is in key.db
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
    """What the files hold, by index.db where that can be believed; without `with_subjects` the
    result's `subjects` mean nothing then. Blocks. Raises OSError."""
    image, subjects = _read_index(blocks)
    image = believed(blocks, image)
    known = subjects if with_subjects else []
    by_index = recover_by_index(blocks, image, known) if image else None
    return by_index or recover(blocks, image)


def believed(blocks: StoredBlocks, image: StoreImage | None) -> StoreImage | None:
    """Find out which store the blocks are of; the image, unless it is of another. Blocks."""
    blocks.store_id = find_store_id(blocks, image)
    if image is None or image.store_id in (0, blocks.store_id):
        return image
    _logger.error("%s: of another stream; the blocks are scanned", blocks.directory / INDEX_NAME)
    return None


def _read_index(blocks: StoredBlocks) -> tuple[StoreImage | None, list[bytes]]:
    """What index.db says, if it says anything."""
    path = blocks.directory / INDEX_NAME
    data = read_file(blocks.disk, path) if blocks.disk.exists(path) else b""
    if is_blank(data):
        return None, []
    try:
        return read_index(data, blocks.seal(seed_of(data), 0))
    except DamagedIndex as error:
        _logger.warning("%s: %s; the blocks are scanned", path, error)
        return None, []


def _adopt(log: JournaledLog, found: Recovered) -> None:
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
