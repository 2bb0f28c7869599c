"""The repair of damaged blocks of one FileStore, while it is used.

    a read, a compaction or a scrub finds damage ─▶ the messages that should live and do not verify
        the block is in memory     ─▶ its bytes are written again
        another replica has them   ─▶ `source` fetches them ─▶ verified ─▶ the block is written anew

Promise
- Only messages that the log has are fetched. A message is taken if its record verifies, and if its
  sequence, subject and length, and its time as far as its damaged record tells it, are right.
- The file is replaced as a whole: written beside the old one, synced, renamed. Whoever reads the
  block meanwhile reads the old file or the new one; the stream goes on.
- Messages that nobody has intact stay reported as damaged; all others of the block are served.
  They are not asked for again until `ask_again`.
- Without a `source`, only what is in memory is repaired.
- Removals that may have stood in damaged bytes are committed again.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import TypeAlias

from natsd.store.block.blocks import MsgBlock
from natsd.store.block.mending import Copies, lacking_in, mend, unlike
from natsd.store.block.stored_blocks import Read, StoredBlock, StoredBlocks
from natsd.store.commit.volume import Volume
from natsd.store.errors import DamagedEncoding
from natsd.store.log.message_log import MessageLog
from natsd.store.maintenance.compaction import Compactor
from natsd.store.recovery.found_damage import FoundDamage
from natsd.store.sequence_set import SequenceSet

_logger = logging.getLogger(__name__)

Source: TypeAlias = Callable[[SequenceSet], AsyncGenerator[bytes]]
"""Yields closed blocks with some of these messages, from one replica after another.

The caller takes from the set what it has got: the next replica is asked for the rest.
"""


class BlockRepair:
    """Repairs the blocks of one FileStore, which makes it and keeps it while it is open."""

    def __init__(
        self,
        volume: Volume,
        log: MessageLog,
        blocks: StoredBlocks,
        care: Compactor,
        damage: list[FoundDamage],
    ) -> None:
        """`damage` is the list of what is damaged in the store, which is kept up to date."""
        self._volume = volume
        self._log = log
        self._blocks = blocks
        self._care = care
        self._damage = damage
        self._writing: set[asyncio.Task[bool]] = set()
        self._lost: dict[int, SequenceSet] = {}  # messages that nobody had, by block id
        self.source: Source | None = None  # None: no other replica has these messages

    def ask_again(self, block_id: int) -> None:
        """Ask again for messages that no other replica had: one may have been away."""
        self._lost.pop(block_id, None)

    async def mend(self, stored: StoredBlock, read: Read) -> bool:
        """Write the block's file anew if it then lacks less; return whether it was written.

        `read` is what the file has; it is used up. Raises StoreError, OSError.
        """
        old = stored.block
        if not self._care.is_full(stored):
            return False
        if old.has_cache and not old.damage:
            return await self._to_end(self._write_again(stored, old))
        if self.source is None:
            return False
        copies = Copies(read.scan)
        lacking = await self._volume.read(lacking_in, read.scan, self._expected(old))
        lost = self._lost.pop(old.block_id, SequenceSet())
        lost.intersection_update(lacking)
        lacking.difference_update(lost)
        if lacking:
            await self._fetch(self.source, lacking, copies)
        lost.union_update(lacking)
        lost.intersection_update(self._expected(old))
        if lost:
            self._lost[old.block_id] = lost.copy()
            if not copies.sequences:
                return False
        return await self._to_end(self._replace(stored, old, read, copies, lost))

    async def finished(self) -> None:
        """Wait until no file is being written: then the store's directory may be removed."""
        await asyncio.gather(*self._writing, return_exceptions=True)

    async def _to_end(self, work: Coroutine[None, None, bool]) -> bool:
        """Replace a file, to the end even if the caller is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return await asyncio.shield(task)

    async def _write_again(self, stored: StoredBlock, block: MsgBlock) -> bool:
        """Write the bytes in memory into the file again; return whether that was done."""
        if not await self._care.rewrite_file(stored, block, block.durable_bytes()):
            return False
        self._report(stored, 0)
        return True

    def _expected(self, block: MsgBlock) -> SequenceSet:
        """Return the messages that live in the block."""
        first, last = max(block.base_sequence, self._log.first_sequence), block.last_sequence
        expected = SequenceSet()
        if first <= last:
            expected.add_range(first, last)
            expected.difference_update(self._log.dead)
        return expected

    async def _fetch(self, source: Source, lacking: SequenceSet, copies: Copies) -> None:
        """Add copies of the lacking messages, and leave in the set those that nobody has."""
        async with contextlib.aclosing(source(lacking)) as images:
            async for image in images:
                try:
                    await self._volume.read(copies.add, image, lacking)
                except DamagedEncoding as error:
                    _logger.error("%s: a copy is not taken: %s", self._blocks.directory, error)
                lacking.difference_update(copies.sequences)
                if not lacking:
                    return

    async def _replace(
        self, stored: StoredBlock, old: MsgBlock, read: Read, copies: Copies, lost: SequenceSet
    ) -> bool:
        """Put a block with the copies in the place of `old`; return whether that was done."""
        seed = int.from_bytes(self._blocks.random_bytes(8), "little")
        logical = await self._volume.read(mend, read.scan, old, copies, lost, seed)
        new = await self._care.block_of(logical, old)
        wrong = await self._volume.read(unlike, new, old, copies.sequences)
        if wrong:
            _logger.error("%s: copies of %d messages differ", stored.path, len(wrong))
            return False
        compress = stored.is_wrapped and self._blocks.data_key is None
        if not await self._care.replace_block(stored, old, new, logical, compress=compress):
            return False
        self._care.commit_removals(new)
        self._report(stored, copies.sequences.count)
        return True

    def _report(self, stored: StoredBlock, fetched: int) -> None:
        """Log a repair with so many fetched messages, and the damage that is left."""
        self._damage[:] = [each for each in self._damage if each.path != stored.path]
        for each in stored.block.damage:
            damage = FoundDamage(stored.path, *each)
            self._damage.append(damage)
            _logger.error("%s; no replica has it", damage)
        self._volume.repairs.blocks += 1
        self._volume.repairs.messages += fetched
        where = f"with {fetched} messages of another replica" if fetched else "from what was intact"
        _logger.warning("%s was damaged, and is repaired %s", stored.path, where)
