"""A view of a file store as of one commit, which can be read slowly while the store goes on.

    freeze ─▶ in a job of the store: a commit is taken ─▶ the live messages are noted
                                     it is written     ─▶ its files get second names in `directory`
    image  ─▶ a thread reads a file, verifies it, and leaves out what is not live
    release ─▶ the second names are removed, and postponed erasures are carried out

Promise
- The view shows the store as of that one commit, whatever is appended, removed, compacted or cut
  afterwards. Blocks are replaced or unlinked by name only, and the second name keeps the bytes.
- Nothing is copied, and the store waits only for its own job. Overwriting in place (an erased
  message) waits until `release`.
- Each call of `image` has one block in memory. The memory of at most BLOCKS_KEPT blocks is kept
  until `release`, so that it can be used again.
- The directory means nothing after a crash: the caller that owns it removes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from natsd.store.backup.block_keys import plan_block
from natsd.store.backup.live_image import LiveImage, live_image
from natsd.store.backup.snapshots import ReusedBytes
from natsd.store.block.stored_blocks import Read, StoredBlock, StoredBlocks, block_name
from natsd.store.commit.commits import FileCommits
from natsd.store.commit.volume import Volume
from natsd.store.disk.disk import DiskFile
from natsd.store.disk.holes import Contents, is_unreadable, read_around
from natsd.store.errors import StoreClosed
from natsd.store.log.message_log import MessageLog
from natsd.store.maintenance.compaction import Compactor
from natsd.store.sequence_set import SequenceSet
from natsd.store.store import StoreState

Moment = Callable[[], None]
BLOCKS_KEPT: Final = 4
"""Number of blocks whose memory is used again: one being read, three being processed."""


@dataclass(slots=True)
class _FrozenBlock:
    """A block of the view; it counts with the messages from `first` to `last`."""

    stored: StoredBlock
    first: int
    last: int
    physical_end: int = 0  # committed bytes of its file; 0: none
    proven: int = 0  # committed logical bytes
    chain: int = 0  # checksum in the mark that ends them
    seed: int = 0  # of the block as it was frozen
    base_sequence: int = 0

    @property
    def name(self) -> str:
        """Name of the block's file."""
        return block_name(self.stored.block.block_id)


class FrozenStore:
    """A frozen view of a FileStore, made by `FileStore.freeze`.

    `state` is the store's state at the commit that the view shows.
    """

    state: StoreState

    def __init__(
        self,
        volume: Volume,
        log: MessageLog,
        blocks: StoredBlocks,
        commits: FileCommits,
        care: Compactor,
        reread: Callable[[StoredBlock], Awaitable[Read | None]],
        directory: Path,
        at_moment: Moment,
    ) -> None:
        self._volume = volume
        self._log = log
        self._stored = blocks
        self._commits = commits
        self._care = care
        self._reread = reread
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
        """Number of blocks; `image` takes an index from 0 to this number - 1."""
        assert self._blocks is not None
        return len(self._blocks)

    async def take(self) -> None:
        """Freeze the store. Call it in a job of the store; raises StoreError or OSError."""
        self._check()
        self._care.hold_erasures()
        self._holds = True
        while not self._is_measured:
            if self._blocks is None and self._commits.log_commits.is_quiet:
                self._note(self._commits.number)()
                break
            if self._blocks is None:
                self._commits.at_commit = self._note
            try:
                # This may return for the commit before the noted one; the loop then goes on.
                await self._commits.synced()
            finally:
                self._commits.at_commit = None
        assert self._blocks is not None
        await self._volume.read(self._link, [f for f in self._blocks if f.physical_end])
        if self._is_released:  # the caller of `freeze` was cancelled meanwhile
            await self._volume.read(self._volume.disk.rmtree, self._directory)
        self._check()

    async def keep_only(self, sequences: Iterable[int]) -> None:
        """Leave all other messages out of the view; `state` does not change. Runs in a thread."""
        await self._volume.read(self._keep_only, sequences)

    async def image(self, index: int, *, keep: bool = False) -> LiveImage:
        """Return the live messages of a block.

        The block's file is given up after that, unless `keep` is set. A damaged block is repaired
        in the store, if that is possible. Raises StoreClosed or OSError.
        """
        image = await self._volume.read(self.read_image, index, keep)
        if image.lost:
            assert self._blocks is not None
            frozen = self._blocks[index]
            read = await self._reread(frozen.stored)
            if read is not None:
                again = await self._volume.read(
                    live_image, read.scan, frozen.first, frozen.last, self._dead
                )
                image = min(image, again, key=lambda each: each.lost)
        return image

    def read_image(self, index: int, keep: bool = False) -> LiveImage:
        """Return the live messages of a block as `image` does. Blocks on the disk."""
        assert self._blocks is not None
        self._check()
        return self._read(self._blocks[index], keep)

    def plan(self) -> bytes:
        """Return the keys of all blocks (block_keys.py). Takes a while: call it in a thread."""
        assert self._blocks is not None
        return b"".join(
            plan_block(
                frozen.seed,
                frozen.base_sequence,
                frozen.proven,
                frozen.chain,
                frozen.first,
                frozen.last,
                self._dead,
            )
            for frozen in self._blocks
        )

    async def release(self) -> None:
        """Remove the second names and allow erasures again; a second call does nothing.

        Raises OSError.
        """
        if self._is_released:
            return
        self._is_released = True
        self._reader = ReusedBytes(0)
        if self._holds:
            self._care.allow_erasures()
        await self._volume.read(self._volume.disk.rmtree, self._directory)

    def _check(self) -> None:
        """Raise StoreClosed if the view was released."""
        if self._is_released:
            raise StoreClosed

    def _note(self, _number: int) -> Callable[[], None]:
        """Note the log's state, which is exactly the content of the commit that is being taken.

        Returns the function to call once the commit is written, before the next one is.
        """
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
        """Note how many bytes of each block's file are committed."""
        assert self._blocks is not None
        for frozen in self._blocks:
            frozen.physical_end = frozen.stored.physical_end
            frozen.proven = frozen.stored.block.durable_size
            frozen.chain = frozen.stored.block.durable_chain
            frozen.seed = frozen.stored.block.seed
            frozen.base_sequence = frozen.stored.block.base_sequence
        self._is_measured = True

    # In threads

    def _keep_only(self, sequences: Iterable[int]) -> None:
        others = SequenceSet()
        others.add_range(self.state.first_sequence, self.state.last_sequence)
        others.difference_update(SequenceSet(sequences))
        self._dead.union_update(others)

    def _link(self, blocks: list[_FrozenBlock]) -> None:
        """Make the directory and give each block's file a second name in it."""
        self._volume.make_directory(self._directory)
        for frozen in blocks:
            self._volume.disk.link(frozen.stored.path, self._directory / frozen.name)

    def _read(self, frozen: _FrozenBlock, keep: bool) -> LiveImage:
        """Read one block's file and return its live messages."""
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
        """Return the first `size` bytes of a file, with zeros for holes. Blocks on the disk."""
        descriptor = file.fileno()
        if descriptor is not None:
            try:
                return Contents(self._reader.read(descriptor, size, 0))
            except OSError as error:
                if not is_unreadable(error):
                    raise
        return read_around(file, size)
