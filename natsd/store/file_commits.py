"""One file store's commits: from what its log did to what is on disk, and back if that fails.

    append …  changed() ─▶ committer ─▶ take_extent ─▶ log.take: a commit of one extent, or of one
                                        for each block that it spans, written one after the other
    all parts written    ─▶ committed   durable_sequence moves, `synced` returns
    all of them on disk  ─▶ on_disk     what nothing refers to any more goes to `Aftermath`
    a part failed        ─▶ failed      everything since the last commit is taken back

Promise
- A commit counts only as a whole: its parts are answered together. Until then nothing that it
  removes is touched on disk.
- A block's file is made, in a thread, before its first extent; the block before it is on disk by
  then, to its last byte. So what is found in a block that has a successor was not torn.
- No space: StoreFull, for those who wait and, until there is some, for whoever appends; files end
  where the last commit did. Anything else: StoreReadOnly, until the store is opened again.
- Nothing is under way, and nothing is kept, for a store with nothing to write.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from natsd.store.block_extent import BlockExtent
from natsd.store.disk import is_out_of_space
from natsd.store.errors import StoreError, StoreFull, StoreReadOnly
from natsd.store.extent import CommitSource, Extent
from natsd.store.journaled_log import JournaledLog
from natsd.store.sequence_set import SequenceSet
from natsd.store.store import DurabilityListener
from natsd.store.stored_blocks import StoredBlock, StoredBlocks
from natsd.store.volume import Volume

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Part:
    """One extent of a commit; `extent` once it is being written."""

    stored: StoredBlock
    logical: BlockExtent
    extent: Extent | None = None


@dataclass(slots=True)
class Durable:
    """What a commit made possible once it is on disk."""

    number: int
    gone: list[StoredBlock]
    full: list[StoredBlock]  # nothing is appended to them any more
    erased: SequenceSet


class Aftermath(Protocol):
    """Who does what must wait until a commit is on disk."""

    def on_disk(self, durable: Durable) -> None: ...

    def committed(self) -> None: ...


@dataclass(slots=True)
class _Commit:
    """The commit being written."""

    number: int
    last_sequence: int
    parts: deque[Part] = field(default_factory=deque)
    written: list[Part] = field(default_factory=list)


class FileCommits(CommitSource):
    """Made by FileStore, for as long as it is open."""

    def __init__(
        self,
        volume: Volume,
        log: JournaledLog,
        blocks: StoredBlocks,
        aftermath: Aftermath,
        *,
        number: int,
    ) -> None:
        self.log = log
        self.blocks = blocks
        self.durable_sequence = log.last_sequence
        self.number = number  # of the last commit that is written
        self.error: StoreError | None = None
        self.is_paused = False
        self._volume = volume
        self._committer = volume.committer
        self._aftermath = aftermath
        self._commit: _Commit | None = None
        self._answers = 0
        self._waiting_for_disk: deque[tuple[int, Durable]] = deque()
        self._waiters: dict[int, asyncio.Future[None]] = {}
        self._is_closing = False
        self._wants_mark = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._orphans: list[StoredBlock] = []  # began and were taken back
        self.erasing: set[int] = set()  # commits whose erasures are not finished
        self.at_commit: Callable[[int], None] | None = None  # called once, as one is taken
        self.listener: DurabilityListener | None = None

    # What the store says and asks

    @property
    def buffered_bytes(self) -> int:  # type: ignore[override]  # is only read
        """Appended and not committed: in the last blocks, mostly in the last one."""
        total = 0
        for stored in self.blocks.newest_first():
            waiting = stored.block.size - stored.block.durable_size
            if waiting == 0:
                break
            total += waiting
        return total

    @property
    def buffered_msgs(self) -> int:  # type: ignore[override]  # is only read
        return max(0, self.log.last_sequence - self.durable_sequence)

    def changed(self) -> None:
        """The log did something."""
        self._committer.dirty(self)

    @property
    def is_idle(self) -> bool:
        """Nothing is to be written, being written, or waiting to be on disk."""
        return self._commit is None and not self.log.is_dirty

    async def synced(self) -> None:
        """Everything that was done before is committed. Raises StoreFull or StoreReadOnly."""
        if self.error is not None:
            raise self.error
        number = self.number
        if self._commit is not None:
            number = self._commit.number
        if self.log.is_dirty:
            number += 1
        if number > self.number:
            self.changed()
            await self._written(number)

    async def _written(self, number: int) -> None:
        waiter = self._waiters.get(number)
        if waiter is None:
            waiter = asyncio.get_running_loop().create_future()
            waiter.add_done_callback(asyncio.Future.exception)  # someone may have stopped waiting
            self._waiters[number] = waiter
        await asyncio.shield(waiter)

    async def mark(self) -> None:
        """Commit what there is, were it nothing: a mark is written."""
        await self.synced()
        self._wants_mark = True
        self.changed()
        await self._written(self.number + 1)

    async def close(self) -> None:
        """Commit everything, and a mark that says that all before it is on disk."""
        await self.synced()
        if self.blocks.all:
            await self.until_on_disk()
            self._is_closing = True
            await self.mark()
        await self.until_on_disk()

    async def until_on_disk(self) -> None:
        """All that was committed is on disk, and what depends on it was handed on."""
        while self._waiting_for_disk:
            for stored in self.blocks.all:
                if stored.file is not None:
                    await self._committer.settle(stored.file)
            self.on_disk(self._answers)

    async def pause(self) -> None:
        """Take no extent until `resume`; none is out on return."""
        self.is_paused = True
        while self._commit is not None and self.error is None:
            await self._written(self._commit.number)

    def resume(self) -> None:
        self.is_paused = False
        self.changed()

    # What the committer asks and says

    def take_extent(self) -> Extent | None:
        if self.error is not None:
            return None
        if self._commit is None:
            if self.is_paused:
                return None
            self._begin()
        if self._commit is None:
            return None
        part = self._commit.parts[0]
        if part.stored.file is None:
            self._spawn(self._prepare(part.stored))
            return None
        part.extent = self.blocks.extent(part.stored, part.logical)
        return part.extent

    def _begin(self) -> None:
        number = self.number + 1
        closing = self._is_closing and self._wants_mark
        erases = bool(self.log.erasures)
        taken = self.log.take(number, force=self._wants_mark, closing=closing)
        if not taken:
            return
        self._wants_mark = False
        commit = _Commit(number, self.log.last_sequence)
        commit.parts.extend(Part(self.blocks[block], extent) for block, extent in taken)
        self._commit = commit
        if erases:
            self.erasing.add(number)
        if self.at_commit is not None and not self.erasing:
            at_commit, self.at_commit = self.at_commit, None
            at_commit(number)

    def committed(self) -> None:
        commit = self._commit
        assert commit is not None
        part = commit.parts.popleft()
        assert part.extent is not None
        self.blocks.written(part.stored, part.extent)
        commit.written.append(part)
        self._answers += 1
        if commit.parts:
            self.changed()
            return
        self._commit = None
        self._finish(commit)

    def _finish(self, commit: _Commit) -> None:
        gone = self.log.committed()
        erased = self.log.erased.copy()
        self.log.erased.clear()
        self.number = commit.number
        self.durable_sequence = commit.last_sequence
        active = self.log.active
        full = [
            part.stored
            for part in commit.written
            if part.stored.block is not active
            and part.stored.block.size == part.stored.block.durable_size
        ]
        durable = Durable(commit.number, [self.blocks[b] for b in gone], full, erased)
        if gone or full or erased:
            self._waiting_for_disk.append((self._answers, durable))
        waiter = self._waiters.pop(commit.number, None)
        if waiter is not None:
            waiter.set_result(None)
        self._aftermath.committed()
        if self.listener is not None:
            self.listener.durable(self.durable_sequence)
        if self.log.is_dirty:
            self.changed()

    def on_disk(self, commits: int) -> None:
        while self._waiting_for_disk and self._waiting_for_disk[0][0] <= commits:
            self._aftermath.on_disk(self._waiting_for_disk.popleft()[1])

    def failed(self, error: StoreError) -> None:
        commit, self._commit = self._commit, None
        begun = self.log.rolled_back()
        self.error = error
        self.log.refuse_changes(lambda: error)
        self._orphans += [self.blocks[block] for block in begun]
        for stored in self._orphans:
            self.blocks.drop(stored)
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters.values():
            waiter.set_exception(error)
        self.at_commit = None
        self.erasing.discard(self.number + 1)
        if self.listener is not None:
            self.listener.failed(error)
        if commit is not None and not isinstance(error, StoreReadOnly):
            self._cut_back(commit)

    def _cut_back(self, commit: _Commit) -> None:
        """Parts of the commit were written before the one that failed: they must not come back."""
        for part in commit.written:
            assert part.extent is not None
            part.stored.physical_end = part.extent.offset
            part.stored.allocated = part.extent.offset
        cut = [part for part in commit.written if part.stored not in self._orphans]
        if cut:
            self.is_paused = True
            self._spawn(self._cut_files(cut))

    async def _cut_files(self, parts: list[Part]) -> None:
        for part in parts:
            assert part.extent is not None
            await self._committer.forget(part.stored.path)
            file, offset = part.extent.file, part.extent.offset
            await self._volume.read(file.truncate, offset)
            await self._volume.read(file.fsync)
        self.resume()

    def resumed(self) -> None:
        self.error = None
        self.log.refuse_changes(None)
        orphans, self._orphans = self._orphans, []
        if orphans:
            self._spawn(self._remove_orphans(orphans))
        self.changed()

    async def _remove_orphans(self, orphans: list[StoredBlock]) -> None:
        await self._committer.forget(*(stored.path for stored in orphans))
        for stored in orphans:
            stored.close()
        await self._volume.read(self.blocks.remove_files, [stored.path for stored in orphans])

    # A block's first extent

    async def _prepare(self, stored: StoredBlock) -> None:
        for other in self.blocks.all:
            if other is not stored and other.file is not None:
                await self._committer.settle(other.file)
        file = await self._volume.read(self.blocks.open_file, stored)
        if self._commit is None or self._commit.parts[0].stored is not stored:
            file.close()  # taken back meanwhile
            return
        stored.file = file
        self.changed()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Work off the committer's path; if it fails, so does the store."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if is_out_of_space(error):
            self.failed(StoreFull(str(error)))
            self.resumed()  # whoever appends next tries again
        elif not isinstance(self.error, StoreReadOnly):
            _logger.error(
                "%s: read-only until it is opened again: %r", self.blocks.directory, error
            )
            self.failed(error if isinstance(error, StoreReadOnly) else StoreReadOnly(repr(error)))
