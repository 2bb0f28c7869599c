"""Which blocks of a store are in memory: read when somebody needs them, dropped when others do.

    ColdBlock ─▶ warm(block) ─▶ reader's thread: read, verify, look up the slots ─▶ block.load
                                one reading for all who wait; the next AHEAD blocks are read
                                along for those who go through them in order

Promise
- What is held is on the books of the volume's budgets, bytes and arrays each; the block that is
  appended to is held apart, and the first one keeps its arrays.
- What is dropped can be read again: only what is on disk goes.
- Messages that were there and do not verify any more are reported once, to `lost`.
- A read that fails is tried again by the next who asks, who waits for that: `PAUSE_MIN_S` at first
  and twice as long each time, up to `PAUSE_MAX_S`. So nobody who asks again and again can spin. It
  is logged when it begins and when it is over.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial

from natsd.store.block import MsgBlock
from natsd.store.disk import is_passing
from natsd.store.errors import BlockUnreadable, StoreError, StoreUnavailable
from natsd.store.journaled_log import JournaledLog
from natsd.store.rebuild import look_up_slots
from natsd.store.stored_blocks import Read, StoredBlock, StoredBlocks
from natsd.store.subject_index import SubjectIndex
from natsd.store.volume import Volume

AHEAD = 2  # blocks read ahead for who goes through them in order
PAUSE_MIN_S = 0.02
PAUSE_MAX_S = 1.0

_logger = logging.getLogger(__name__)
Lost = Callable[[StoredBlock, Read, list[int]], None]


class BlockCache:
    """Made by FileStore, for as long as it is open."""

    def __init__(self, volume: Volume, log: JournaledLog, blocks: StoredBlocks, lost: Lost) -> None:
        self._volume = volume
        self._log = log
        self._blocks = blocks
        self._lost = lost
        self._loading: dict[int, asyncio.Task[None]] = {}
        self._warmed_last = 0  # id of the block that was asked for last
        self._pause_s = 0.0  # before the next read: those before failed

    async def warm(self, block: MsgBlock) -> None:
        """Have all of the block in memory: its bytes and its arrays. Raises StoreUnavailable,
        BlockUnreadable."""
        task = self._load(block)
        if 0 < block.block_id - self._warmed_last <= AHEAD + 1:
            for following in self._following(block):
                self._load(following)
        self._warmed_last = block.block_id
        await asyncio.shield(task)

    def held(self, block: MsgBlock) -> None:
        """The block is in memory and can be dropped: it counts from now on."""
        key = (self._blocks.directory, block.block_id)
        if block.has_cache:
            drop = partial(self._drop_bytes, block)
            self._volume.cache.hold(key, block.cached_bytes, drop, block.take_cache_used)
        if block.has_arrays:
            drop = partial(self._drop_arrays, block)
            self._volume.arrays.hold(key, block.array_bytes, drop, block.take_arrays_used)

    def release(self, block: MsgBlock) -> None:
        """The block is gone, or is appended to."""
        key = (self._blocks.directory, block.block_id)
        self._volume.cache.release(key)
        self._volume.arrays.release(key)

    async def close(self) -> None:
        """Nothing is read any more, and nothing held."""
        for task in list(self._loading.values()):
            task.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)
        for stored in self._blocks.all:
            self.release(stored.block)

    def _following(self, block: MsgBlock) -> Iterator[MsgBlock]:
        """The next blocks that are not in memory."""
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
            task.exception()  # whoever waits for it hears of it

    async def _read(self, block: MsgBlock) -> None:
        if self._pause_s:
            await asyncio.sleep(self._pause_s)
        stored = self._blocks.find(block.block_id)
        if stored is None:
            return  # it went meanwhile
        async with stored.lock:
            if self._is_gone(stored, block):
                return
            subjects, size = self._log.subjects, block.durable_size
            try:
                read = await self._volume.read(
                    self._read_in_thread, stored, stored.physical_end, size, subjects
                )
            except (OSError, MemoryError) as error:
                raise self._failed(stored, error) from error
            self._worked()
            if self._is_gone(stored, block):
                return
            if block.durable_size != size or self._log.subjects is not subjects:
                return  # whoever needs it asks again
            lost = block.load(read.scan)
            if lost:
                self._lost(stored, read, lost)
            self.held(block)

    def _is_gone(self, stored: StoredBlock, block: MsgBlock) -> bool:
        """Whether the block went, or was written anew, meanwhile: whoever needs it asks again."""
        return self._blocks.find(block.block_id) is not stored or stored.block is not block

    def _failed(self, stored: StoredBlock, error: OSError | MemoryError) -> StoreError:
        if not self._pause_s:
            _logger.error("%s cannot be read, and is tried again: %s", stored.path, error)
        self._pause_s = min(max(2 * self._pause_s, PAUSE_MIN_S), PAUSE_MAX_S)
        kind = StoreUnavailable if is_passing(error) else BlockUnreadable
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
