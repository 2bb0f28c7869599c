"""What a file store does when nobody waits for it: unlink, seal, compress, erase, compact.

    a commit is on disk ─▶ its blocks that hold nothing any more     unlinked
                           its blocks that are full                  cut to size, perhaps compressed
                           its erased messages                       overwritten
                           blocks that are mostly dead               rewritten without the dead

Promise
- All of it happens after the commit that asks for it is on disk, one thing after another, in one
  task that ends when nothing is left to do.
- A file is replaced as a whole (`*.new`, synced, renamed, directory synced) or overwritten in place
  where that is what it is for. A crash in between leaves what recovery understands.
- What fails is logged, and left for later or for recovery; the store goes on, unless a sync failed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

from natsd.store.block import MsgBlock
from natsd.store.block_cache import BlockCache
from natsd.store.errors import StoreError
from natsd.store.file_commits import Durable
from natsd.store.journaled_log import JournaledLog
from natsd.store.record import OVERHEAD_BYTES
from natsd.store.sequence_set import SequenceSet
from natsd.store.stored_blocks import StoredBlock, StoredBlocks
from natsd.store.volume import Volume

_logger = logging.getLogger(__name__)
Job = Callable[[], Awaitable[None]]


class BlockCare:
    """Made by FileStore, for as long as it is open."""

    def __init__(
        self,
        volume: Volume,
        log: JournaledLog,
        blocks: StoredBlocks,
        cache: BlockCache,
        *,
        compress: bool,
    ) -> None:
        self._volume = volume
        self._log = log
        self._blocks = blocks
        self._cache = cache
        self._compress = compress
        self._jobs: deque[Job] = deque()
        self._task: asyncio.Task[None] | None = None

    def on_disk(self, durable: Durable) -> None:
        """A commit is on disk: do what it allows."""
        for stored in durable.gone:
            self._blocks.drop(stored)
            self._cache.release(stored.block)
        if durable.gone:
            self.later(partial(self._unlink, durable.gone))
        for stored in durable.full:
            if self._blocks.find(stored.block.block_id) is stored:
                self.later(partial(self._seal, stored))
        if durable.erased:
            self.later(partial(self.erase, durable.erased))

    def later(self, job: Job) -> None:
        """Do this after what is waiting already."""
        self._jobs.append(job)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def finished(self) -> None:
        """Nothing is left to do."""
        while self._task is not None:
            await asyncio.shield(self._task)

    async def _work(self) -> None:
        try:
            while self._jobs:
                job = self._jobs.popleft()
                try:
                    await job()
                except (OSError, StoreError) as error:
                    _logger.warning("%s: %s", self._blocks.directory, error)
        finally:
            self._task = None

    async def _unlink(self, gone: list[StoredBlock]) -> None:
        paths = [stored.path for stored in gone]
        await self._volume.committer.forget(*paths)
        for stored in gone:
            stored.close()
        await self._volume.read(self._blocks.remove_files, paths)

    # Blocks that are full

    async def _seal(self, stored: StoredBlock) -> None:
        """Nothing is appended to it any more: give back what was reserved, close its file."""
        block = stored.block
        if self._blocks.find(block.block_id) is not stored or block is self._log.active:
            return
        await self._volume.committer.forget(stored.path)
        block.seal()
        if self._compress and block.has_cache:
            await self._compress_file(stored)
        elif stored.file is not None and stored.allocated > stored.physical_end:
            await self._volume.read(stored.file.truncate, stored.physical_end)
            stored.allocated = stored.physical_end
        stored.close()
        self._cache.held(block)

    async def _compress_file(self, stored: StoredBlock) -> None:
        block = stored.block
        logical = block.durable_bytes()
        size = await self._volume.read(self._replace_compressed, stored, logical)
        stored.is_wrapped = True
        stored.physical_end = stored.allocated = size

    def _replace_compressed(self, stored: StoredBlock, logical: bytes) -> int:
        data = self._blocks.sealed_bytes(logical, stored.block, compress=True)
        self._blocks.replace_file(stored.path, data)
        return len(data)

    # Erasing

    async def erase(self, sequences: SequenceSet) -> None:
        """Overwrite the bytes of these messages; that they are gone is on disk."""
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

    async def _erase_in(self, stored: StoredBlock, sequences: list[int]) -> None:
        block = stored.block
        if not (block.has_cache and block.has_arrays):
            await self._cache.warm(block)
        records = [
            (block.offset_of(sequence), self._erased_record(block, sequence))
            for sequence in sequences
            if block.offset_of(sequence)
        ]
        await self._volume.committer.forget(stored.path)
        if stored.is_wrapped:
            await self._rewrite_wrapped(stored)
        else:
            await self._volume.read(self._overwrite, stored, records)

    def _erased_record(self, block: MsgBlock, sequence: int) -> bytes:
        noise = self._blocks.random_bytes(block.record_bytes(sequence) - OVERHEAD_BYTES)
        return block.erase_record(sequence, noise)

    def _overwrite(self, stored: StoredBlock, records: list[tuple[int, bytes]]) -> None:
        file = self._blocks.disk.open(stored.path)
        try:
            for offset, record in records:
                file.pwrite(record, offset)
            file.fdatasync()
        finally:
            file.close()

    async def _rewrite_wrapped(self, stored: StoredBlock) -> None:
        raise NotImplementedError
