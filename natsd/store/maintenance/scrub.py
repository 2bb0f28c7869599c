"""The scrub: files of an open store are read from the disk, and verified as `check.py` does.

    a full block        read, scanned ─▶ damage ─▶ repaired (block_repair.py), or reported
    a consumer's files  recovered in a copy ─▶ damage ─▶ a new checkpoint from memory

Promise
- One block, or one consumer, at a time; the caller pauses between them.
- Blocks and consumers may be removed, replaced and compacted meanwhile: that is no damage.
- The newest block is left out: it is in memory, and being written to.
- Damage that cannot be repaired is logged once, and is in the store's `damage`.
"""

import logging
from functools import partial
from pathlib import Path
from typing import NamedTuple

from natsd.store.block.stored_blocks import Read, StoredBlock, StoredBlocks
from natsd.store.commit.volume import Volume
from natsd.store.consumer.consumer_store import ConsumerStore
from natsd.store.crypto.keys import Random
from natsd.store.disk.disk import is_transient
from natsd.store.maintenance.block_cache import BlockCache
from natsd.store.maintenance.block_repair import BlockRepair
from natsd.store.maintenance.check import Finding, Report, check_consumer
from natsd.store.maintenance.compaction import Compactor
from natsd.store.maintenance.overlay_disk import OverlayDisk
from natsd.store.recovery.found_damage import FoundDamage

_logger = logging.getLogger(__name__)


class Scrubbed(NamedTuple):
    """What was read of a file: its length, and the number of damages found and left in it."""

    bytes: int = 0
    found: int = 0
    left: int = 0


class BlockScrub:
    """The scrub of one FileStore's blocks."""

    def __init__(
        self,
        volume: Volume,
        blocks: StoredBlocks,
        cache: BlockCache,
        care: Compactor,
        repair: BlockRepair,
        damage: list[FoundDamage],
    ) -> None:
        """`damage` is the list of what is damaged in the store."""
        self._volume = volume
        self._blocks = blocks
        self._cache = cache
        self._care = care
        self._repair = repair
        self._damage = damage

    def block_ids(self) -> list[int]:
        """Return the numbers of the full blocks, oldest first."""
        return sorted(each.block.block_id for each in self._blocks.all if self._care.is_full(each))

    async def scrub(self, block_id: int) -> Scrubbed:
        """Read and verify a block's file, and repair it if it can be. Raises OSError.

        OSError says that descriptors or memory are lacking: nothing was found out.
        """
        stored = self._blocks.find(block_id)
        if stored is None or not self._care.is_full(stored):
            return Scrubbed()
        found = await self._damage_of(stored)
        size = stored.physical_end
        if not found or self._blocks.find(block_id) is not stored:
            return Scrubbed(size)
        self._repair.ask_again(block_id)
        read = await self._cache.reread(stored)
        if self._blocks.find(block_id) is not stored:
            return Scrubbed(size)
        left = [] if read is None else read.damage
        for each in left:
            damage = FoundDamage(stored.path, *each)
            if damage not in self._damage:
                self._damage.append(damage)
                _logger.error("%s", damage)
        return Scrubbed(size, found, found if read is None else len(left))

    async def _damage_of(self, stored: StoredBlock) -> int:
        """Return the number of damages in a block's file, as it is on the disk."""
        async with stored.lock:
            size = stored.block.durable_size
            try:
                read = await self._volume.read(self._read, stored, stored.physical_end, size)
            except OSError as error:
                if is_transient(error):
                    raise
                return 1
        return len(read.damage)

    def _read(self, stored: StoredBlock, physical_end: int, size: int) -> Read:
        return self._blocks.read(stored, physical_end, size, from_medium=True)


async def scrub_consumer(volume: Volume, store: ConsumerStore, random: Random) -> Scrubbed:
    """Verify a consumer's files, and write them anew if they are damaged.

    Raises StoreError, OSError.
    """
    found = await store.verify(partial(_findings, volume, store.directory, random))
    for finding in found:
        _logger.error("%s; a new checkpoint replaces it", finding)
    return Scrubbed(0, len(found), 0)


def _findings(volume: Volume, directory: Path, random: Random, committed: int) -> list[Finding]:
    """Return the damage of a consumer's files, whose log has so many bytes. Blocks on the disk."""
    report = Report()
    disk = OverlayDisk(volume.disk)
    check_consumer(disk, volume.directory, directory, random, report, committed)
    return report.findings
