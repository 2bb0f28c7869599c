"""A file store as of one commit, to be read at leisure while the store goes on.

    freeze ─▶ in care's turn: a commit is taken  ─▶ what lives is noted
                              it is written      ─▶ its files get a second name, in `directory`
    image  ─▶ a thread reads a file, verifies it, leaves out what does not live
    release ─▶ the second names go, and erasures that waited are carried out

Promise
- What is read is the store as of that one commit, whatever is appended, removed, compacted or cut
  afterwards: blocks are replaced or unlinked by name, and the second name keeps the bytes.
- Nothing is copied; the store waits for nothing but its own turn. What is overwritten in place
  (an erased message) waits until `release`.
- One block is in memory at a time, for each call of `image`; the memory of BLOCKS_KEPT at most is
  kept until `release`, to be used again.
- The directory means nothing after a crash: whoever owns it removes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from natsd.store.block_care import BlockCare
from natsd.store.disk import DiskFile
from natsd.store.errors import StoreClosed
from natsd.store.file_commits import FileCommits
from natsd.store.holes import Contents, is_unreadable, read_around
from natsd.store.journaled_log import JournaledLog
from natsd.store.live_image import LiveImage, live_image
from natsd.store.reused_bytes import ReusedBytes
from natsd.store.sequence_set import SequenceSet
from natsd.store.store import StoreState
from natsd.store.stored_blocks import StoredBlock, StoredBlocks, block_name
from natsd.store.volume import Volume

Moment = Callable[[], None]
BLOCKS_KEPT: Final = 4
"""So many blocks' memory is used again: of who reads one while three before it are at work."""


@dataclass(slots=True)
class _FrozenBlock:
    """Messages `first` to `last` are in it; so much of its file, and of its bytes, counts."""

    stored: StoredBlock
    first: int
    last: int
    physical_end: int = 0
    proven: int = 0

    @property
    def name(self) -> str:
        return block_name(self.stored.block.block_id)


class FrozenStore:
    """Made by `FileStore.freeze`; `state` is the store's."""

    state: StoreState

    def __init__(
        self,
        volume: Volume,
        log: JournaledLog,
        blocks: StoredBlocks,
        commits: FileCommits,
        care: BlockCare,
        directory: Path,
        at_moment: Moment,
    ) -> None:
        self._volume = volume
        self._log = log
        self._stored = blocks
        self._commits = commits
        self._care = care
        self._directory: Final = directory
        self._at_moment = at_moment
        self._blocks: list[_FrozenBlock] | None = None
        self._is_measured = False
        self._dead = SequenceSet()
        self._holds = False
        self._is_released = False
        self._reader = ReusedBytes(BLOCKS_KEPT)

    @property
    def num_blocks(self) -> int:
        """How many blocks `image` knows, from 0 on, in order."""
        assert self._blocks is not None
        return len(self._blocks)

    async def take(self) -> None:
        """Hold what there is. In care's turn; raises StoreError, OSError."""
        self._check()
        self._care.hold_erasures()
        self._holds = True
        while not self._is_measured:
            if self._blocks is None and self._log.is_quiet:
                self._note(self._commits.number)()
                break
            if self._blocks is None:
                self._commits.at_commit = self._note
            try:
                await self._commits.synced()  # perhaps of the commit before the one that was noted
            finally:
                self._commits.at_commit = None
        assert self._blocks is not None
        await self._volume.read(self._link, [f for f in self._blocks if f.physical_end])
        if self._is_released:  # nobody waited for it
            await self._volume.read(self._volume.disk.rmtree, self._directory)
        self._check()

    async def keep_only(self, sequences: Iterable[int]) -> None:
        """Leave out all other messages; in a thread. `state` is what it was."""
        await self._volume.read(self._keep_only, sequences)

    async def image(self, index: int, *, keep: bool = False) -> LiveImage:
        """What lives of a block; its file is given up then, unless it is to be read again. Raises
        StoreClosed, OSError."""
        return await self._volume.read(self.read_image, index, keep)

    def read_image(self, index: int, keep: bool = False) -> LiveImage:
        """The same, in a thread."""
        assert self._blocks is not None
        self._check()
        return self._read(self._blocks[index], keep)

    async def release(self) -> None:
        """Give up what is still held; a second call does nothing. Raises OSError."""
        if self._is_released:
            return
        self._is_released = True
        self._reader = ReusedBytes(0)
        if self._holds:
            self._care.allow_erasures()
        await self._volume.read(self._volume.disk.rmtree, self._directory)

    def _check(self) -> None:
        if self._is_released:
            raise StoreClosed

    def _note(self, _number: int) -> Callable[[], None]:
        """A commit holds what the log holds now, and nothing else. What to call once it is written,
        before the next one is."""
        self.state = self._log.state()
        self._dead = self._log.dead.copy()
        first, last = self.state.first_sequence, self.state.last_sequence
        self._blocks = [
            _FrozenBlock(
                self._stored[block], max(block.base_sequence, first), min(block.last_sequence, last)
            )
            for block in self._log.all_blocks
        ]
        self._at_moment()
        return self._measure

    def _measure(self) -> None:
        assert self._blocks is not None
        for frozen in self._blocks:
            frozen.physical_end = frozen.stored.physical_end
            frozen.proven = frozen.stored.block.durable_size
        self._is_measured = True

    # In threads

    def _keep_only(self, sequences: Iterable[int]) -> None:
        others = SequenceSet()
        others.add_range(self.state.first_sequence, self.state.last_sequence)
        others.difference_update(SequenceSet(sequences))
        self._dead.union_update(others)

    def _link(self, blocks: list[_FrozenBlock]) -> None:
        self._volume.make_directory(self._directory)
        for frozen in blocks:
            self._volume.disk.link(frozen.stored.path, self._directory / frozen.name)

    def _read(self, frozen: _FrozenBlock, keep: bool) -> LiveImage:
        if not frozen.physical_end:
            return LiveImage()
        disk, path = self._volume.disk, self._directory / frozen.name
        with contextlib.closing(disk.open(path, write=False)) as file:
            found = self._read_file(file, frozen.physical_end)
        read = self._stored.scan(
            found.data,
            frozen.stored.block.block_id,
            proven=frozen.proven,
            holes_end=found.holes_end,
        )
        image = live_image(read.scan, frozen.first, frozen.last, self._dead)
        if not keep:
            disk.unlink(path)
        return image

    def _read_file(self, file: DiskFile, size: int) -> Contents:
        """Blocks."""
        descriptor = file.fileno()
        if descriptor is not None:
            try:
                return Contents(self._reader.read(descriptor, size, 0))
            except OSError as error:
                if not is_unreadable(error):
                    raise
        return read_around(file, size)
