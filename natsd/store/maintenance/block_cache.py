"""The blocks of a store that are in memory: read when needed, dropped to make room for others.

    ColdBlock ─▶ warm(block) ─▶ reader's thread: read, verify, look up the slots ─▶ block.load
                                one read serves all waiting callers; for a caller that goes through
                                the blocks in order, the next AHEAD blocks are read as well

Promise
- The memory of cached blocks counts against the volume's two budgets, one for bytes of blocks and
  one for their arrays. The active block, to which messages are appended, counts in neither.
- A block can be read again after it was dropped, since only bytes that are on disk are dropped.
- A block in which damage is found is repaired before it is loaded, if that is possible (`repair`).
- Messages that verified earlier and do not verify any more are reported once, to `lost`.
- After a failed read, the next caller that needs a block waits before it reads again: PAUSE_MIN_S
  at first, then twice as long each time, up to PAUSE_MAX_S. So no caller can retry in a busy loop.
  The first failure and the recovery are logged.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from natsd.store.block.blocks import MsgBlock
from natsd.store.block.stored_blocks import Read, StoredBlock, StoredBlocks
from natsd.store.commit.volume import Volume
from natsd.store.disk.disk import is_transient
from natsd.store.errors import BlockUnreadable, StoreError, StoreUnavailable
from natsd.store.log.message_log import MessageLog, look_up_slots
from natsd.store.log.subjects import SubjectIndex

AHEAD = 2  # blocks that are read ahead for a caller that goes through the blocks in order
PAUSE_MIN_S = 0.02
PAUSE_MAX_S = 1.0

_logger = logging.getLogger(__name__)
Lost = Callable[[StoredBlock, Read, list[int]], None]
Repair = Callable[[StoredBlock, Read], Awaitable[bool]]
"""Repairs a block in whose file there is damage; returns whether it has another file now."""


class BlockCache:
    """The cache of one FileStore's blocks.

    FileStore makes it, sets `repair` right after that, and keeps it while it is open.
    """

    repair: Repair

    def __init__(self, volume: Volume, log: MessageLog, blocks: StoredBlocks, lost: Lost) -> None:
        self._volume = volume
        self._log = log
        self._blocks = blocks
        self._lost = lost
        self._loading: dict[int, asyncio.Task[None]] = {}
        self._warmed_last = 0  # id of the block that `warm` was last called for; 0: none
        self._pause_s = 0.0  # wait before the next read, after failed reads; 0: none

    async def warm(self, block: MsgBlock) -> None:
        """Load a block's bytes and arrays into memory, and read ahead for sequential readers.

        Raises StoreUnavailable if a descriptor or memory is lacking, and BlockUnreadable if the
        disk failed.
        """
        task = self._load(block)
        if 0 < block.block_id - self._warmed_last <= AHEAD + 1:
            for following in self._following(block):
                self._load(following)
        self._warmed_last = block.block_id
        await asyncio.shield(task)

    def read_again(self, block: MsgBlock) -> None:
        """Read a damaged block's file in the background, which repairs it."""
        self._load(block)

    async def reread(self, stored: StoredBlock) -> Read | None:
        """Return what a damaged block's file has, after a repair if that is possible.

        None: it cannot be read.
        """
        with contextlib.suppress(StoreError, OSError):
            await asyncio.shield(self._load(stored.block))
            async with stored.lock:
                size = stored.block.durable_size
                return await self._volume.read(self._blocks.read, stored, stored.physical_end, size)
        return None

    def held(self, block: MsgBlock) -> None:
        """Count the block's memory against the budgets; from now on it may be dropped."""
        key = (self._blocks.directory, block.block_id)
        if block.has_cache:
            drop = partial(self._drop_bytes, block)
            self._volume.cache.hold(key, block.cached_bytes, drop, block.take_cache_used)
        if block.has_arrays:
            drop = partial(self._drop_arrays, block)
            self._volume.arrays.hold(key, block.array_bytes, drop, block.take_arrays_used)

    def release(self, block: MsgBlock) -> None:
        """Remove the block from the budgets, because it is gone or is appended to."""
        key = (self._blocks.directory, block.block_id)
        self._volume.cache.release(key)
        self._volume.arrays.release(key)

    async def close(self) -> None:
        """Cancel all reads and remove all blocks from the budgets."""
        for task in list(self._loading.values()):
            task.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)
        for stored in self._blocks.all:
            self.release(stored.block)

    def _following(self, block: MsgBlock) -> Iterator[MsgBlock]:
        """Yield those of the next AHEAD blocks that are not completely in memory."""
        for _ in range(AHEAD):
            following = self._log.block_with(block.last_sequence + 1)
            if following is None or following is self._log.active or following is block:
                return
            if not (following.has_cache and following.has_arrays):
                yield following
            block = following

    def _load(self, block: MsgBlock) -> asyncio.Task[None]:
        task = self._loading.get(block.block_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._read(block))
            self._loading[block.block_id] = task
            task.add_done_callback(lambda done: self._loaded(block.block_id, done))
        return task

    def _loaded(self, block_id: int, task: asyncio.Task[None]) -> None:
        del self._loading[block_id]
        if not task.cancelled():
            task.exception()  # marked as retrieved: the waiting callers get it from the task

    async def _read(self, block: MsgBlock) -> None:
        if self._pause_s:
            await asyncio.sleep(self._pause_s)
        stored = self._blocks.find(block.block_id)
        if stored is None:
            return  # the block was removed meanwhile
        damaged = await self._read_file(stored, block, is_last=False)
        if damaged is not None and not await self._is_repaired(stored, damaged):
            await self._read_file(stored, block, is_last=True)

    async def _is_repaired(self, stored: StoredBlock, damaged: Read) -> bool:
        """Repair the block; return whether it has another file now."""
        try:
            return await self.repair(stored, damaged)
        except (StoreError, OSError) as error:
            _logger.error("%s cannot be repaired: %s", stored.path, error)
            return False

    async def _read_file(
        self, stored: StoredBlock, block: MsgBlock, *, is_last: bool
    ) -> Read | None:
        """Load what the block's file has; a damaged file is returned instead unless `is_last`."""
        async with stored.lock:
            if self._is_gone(stored, block):
                return None
            subjects, size = self._log.subjects, block.durable_size
            try:
                read = await self._volume.read(
                    self._read_in_thread, stored, stored.physical_end, size, subjects
                )
            except (OSError, MemoryError) as error:
                if is_last or isinstance(error, MemoryError) or is_transient(error):
                    raise self._failed(stored, error) from error
                return self._blocks.missing(stored, size)
            self._worked()
            if self._is_gone(stored, block):
                return None
            if read.damage and not is_last:
                return read
            if block.has_cache and block.has_arrays:
                return None  # nothing is needed from the file
            if block.durable_size != size or self._log.subjects is not subjects:
                return None  # the read is outdated; the caller asks again if it still needs it
            lost = block.load(read.scan)
            if lost:
                self._lost(stored, read, lost)
            self.held(block)
            return None

    def _is_gone(self, stored: StoredBlock, block: MsgBlock) -> bool:
        """Return whether the block was removed or rewritten meanwhile.

        The caller then has to ask again, if it still needs the block.
        """
        return self._blocks.find(block.block_id) is not stored or stored.block is not block

    def _failed(self, stored: StoredBlock, error: OSError | MemoryError) -> StoreError:
        if not self._pause_s:
            _logger.error("%s cannot be read, and is tried again: %s", stored.path, error)
        self._pause_s = min(max(2 * self._pause_s, PAUSE_MIN_S), PAUSE_MAX_S)
        kind = StoreUnavailable if is_transient(error) else BlockUnreadable
        return kind(f"{stored.path}: {error}")

    def _worked(self) -> None:
        if self._pause_s:
            self._pause_s = 0.0
            _logger.info("%s can be read again", self._blocks.directory)

    def _read_in_thread(
        self, stored: StoredBlock, physical_end: int, size: int, subjects: SubjectIndex
    ) -> Read:
        read = self._blocks.read(stored, physical_end, size)
        look_up_slots(read.scan, subjects)
        return read

    def _drop_bytes(self, block: MsgBlock) -> None:
        if block is not self._log.active:
            block.clear_cache()

    def _drop_arrays(self, block: MsgBlock) -> None:
        if block is not self._log.active:
            block.drop_arrays()
