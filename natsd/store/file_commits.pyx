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

Compiled since a thousand streams may commit at once: what the loop pays for each is here, in
attached.pyx and in the log.
"""

import asyncio
import logging
from collections import deque

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.store.block cimport MsgBlock
from natsd.store.block_extent cimport BlockExtent
from natsd.store.extent cimport Extent
from natsd.store.journaled_log cimport JournaledLog

from natsd.store.disk import is_passing
from natsd.store.errors import StoreFull, StoreReadOnly
from natsd.store.extent import grown_allocation

RETRY_S = 1.0   # how long after a block's file could not be opened that is tried again

_logger = logging.getLogger(__name__)


@cython.no_gc           # parts and commits are part of no cycle, and there are many
@cython.freelist(64)
cdef class Part:
    """One extent of a commit; `extent` once it is being written."""

    cdef object stored
    cdef BlockExtent logical
    cdef Extent extent


@cython.no_gc
@cython.freelist(64)
cdef class Commit:
    """The commit being written; its parts are written one after the other."""

    cdef uint64_t number
    cdef uint64_t last_sequence
    cdef list parts
    cdef Py_ssize_t written                 # so many of them are

    cdef Part next_part(self):
        return <Part> self.parts[self.written]


class Durable:
    """What a commit made possible once it is on disk: blocks that are `gone`, blocks that are
    `full` (nothing is appended to them any more, and the next block has been begun), messages to be
    overwritten (`erased`); `begins`: it is the first one of some block."""

    __slots__ = ("begins", "erased", "full", "gone", "number")

    def __init__(self, number, begins, gone, full, erased):
        self.number = number
        self.begins = begins
        self.gone = gone
        self.full = full
        self.erased = erased


cdef class FileCommits:
    """Made by FileStore, for as long as it is open. A CommitSource."""

    cdef readonly JournaledLog log
    cdef readonly object blocks
    cdef readonly uint64_t durable_sequence
    cdef readonly uint64_t number           # of the last commit that is written
    cdef readonly object error              # StoreError, or None
    cdef readonly uint64_t failures         # so often was taken back what was not written
    cdef readonly int pauses                # no extent is taken while there are any
    cdef readonly set erasing               # commits whose erasures are not finished
    # Called once with the number, as one is taken; what it returns, as that one is written.
    cdef public object at_commit            # or None
    cdef public object listener             # DurabilityListener, or None
    cdef object _at_written
    cdef object _volume
    cdef object _committer
    cdef object _aftermath
    cdef Commit _commit
    cdef uint64_t _answers
    cdef object _waiting_for_disk           # deque of (answers, Durable)
    cdef dict _waiters
    cdef object _preparing                  # the StoredBlock whose file is being made, or None
    cdef bint _is_closing
    cdef bint _wants_mark
    cdef set _tasks
    cdef list _orphans                      # began and were taken back

    def __init__(self, volume, JournaledLog log not None, blocks, aftermath, *, uint64_t number):
        self.log = log
        self.blocks = blocks
        self.durable_sequence = log.edges.last
        self.number = number
        self.erasing = set()
        self._volume = volume
        self._committer = volume.committer
        self._aftermath = aftermath
        self._waiting_for_disk = deque()
        self._waiters = {}
        self._tasks = set()
        self._orphans = []

    # What the store says and asks

    @property
    def buffered_bytes(self) -> int:
        """Appended and not committed: in the last blocks, mostly in the last one."""
        cdef MsgBlock block
        cdef uint32_t at = self.log.blocks.count
        cdef uint64_t total = 0
        while at > 0:
            at -= 1
            block = self.log.blocks.at(at)
            if block.size == block.durable_size:
                break
            total += block.size - block.durable_size
        return total

    @property
    def buffered_msgs(self) -> int:
        if self.log.edges.last <= self.durable_sequence:
            return 0
        return self.log.edges.last - self.durable_sequence

    def changed(self) -> None:
        """The log did something."""
        self._committer.dirty(self)

    @property
    def is_idle(self) -> bool:
        """Nothing is to be written, being written, or waiting to be on disk."""
        return self._commit is None and not self.log.is_dirty

    async def synced(self):
        """Everything that was done before is committed. Raises StoreFull or StoreReadOnly."""
        cdef uint64_t number = self.number
        if self.error is not None:
            raise self.error
        if self._commit is not None:
            number = self._commit.number
        if self.log.is_dirty:
            number += 1
        if number > self.number:
            self.changed()
            await self._until_written(number)

    async def _until_written(self, uint64_t number):
        waiter = self._waiters.get(number)
        if waiter is None:
            waiter = asyncio.get_running_loop().create_future()
            waiter.add_done_callback(asyncio.Future.exception)  # someone may have stopped waiting
            self._waiters[number] = waiter
        await asyncio.shield(waiter)

    async def mark(self):
        """Commit what there is, were it nothing: a mark is written."""
        await self.synced()
        self._wants_mark = True
        self.changed()
        await self._until_written(self.number + 1)

    async def close(self):
        """Commit everything, and a mark that says that all before it is on disk."""
        await self.synced()
        if self.blocks.all:
            await self.until_on_disk()
            self._is_closing = True
            await self.mark()
        await self.until_on_disk()

    async def until_on_disk(self):
        """All that was committed is on disk, and what depends on it was handed on."""
        while self._waiting_for_disk:
            await self._settle_files()
            self.on_disk(self._answers)

    async def settled(self):
        """Everything that was committed is on disk, whatever `sync_interval` says. Raises
        StoreReadOnly or StoreFull."""
        await self.pause()
        try:
            if self.error is not None:
                raise self.error
            await self._settle_files()
        finally:
            self.resume()

    async def _settle_files(self):
        for stored in self.blocks.all:
            if stored.file is not None:
                await self._committer.settle(stored.file)

    def give_up(self, error) -> None:
        """Nothing is written any more, and nothing is out: tell those who wait."""
        if self.error is None:
            self.error = error
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters.values():
            waiter.set_exception(self.error)

    async def pause(self):
        """Take no extent until `resume`; none is out on return. Raises StoreError if the one that
        was out failed; then nothing is paused."""
        self.pauses += 1
        try:
            while self._commit is not None and self.error is None:
                await self._until_written(self._commit.number)
        except BaseException:
            self.resume()
            raise

    def resume(self) -> None:
        self.pauses -= 1
        self.changed()

    # What the committer asks and says

    def take_extent(self):
        """See CommitSource."""
        cdef Part part
        if self.error is not None:
            return None
        if self._commit is None:
            if self.pauses:
                return None
            self._begin()
            if self._commit is None:
                return None
        part = self._commit.next_part()
        if part.stored.file is None:
            if self._preparing is not part.stored:
                self._preparing = part.stored
                self._spawn(self._prepare(part.stored))
            return None
        part.extent = self._extent(part)
        return part.extent

    cdef Extent _extent(self, Part part):
        """Behind what the block's file holds; more space is reserved, and the directory synced,
        where need be."""
        cdef object stored = part.stored
        cdef Extent extent = Extent(
            stored.file, stored.physical_end,
            self.blocks.wrapped(stored, part.logical) if stored.is_wrapped else part.logical,
            identity=(<MsgBlock> stored.block).seed,
        )
        cdef int64_t end = extent.offset + extent.size
        if end > stored.allocated:
            extent.allocate_to = grown_allocation(end, self.blocks.block_bytes_max)
        if not stored.is_named:
            extent.new_in = self.blocks.directory
        return extent

    cdef int _written(self, Part part) except -1:
        """That part is in its file."""
        cdef object stored = part.stored
        cdef Extent extent = part.extent
        stored.physical_end = extent.offset + extent.size
        if extent.allocate_to:
            stored.allocated = max(stored.allocated, extent.allocate_to)
        if extent.new_in is not None:
            stored.is_named = True
        return 0

    def _begin(self) -> None:
        cdef Commit commit
        cdef Part part
        cdef MsgBlock block
        cdef BlockExtent extent
        cdef uint64_t number = self.number + 1
        cdef bint erases = self.log.erasures.count > 0
        cdef list taken = self.log.take(
            number, force=self._wants_mark, closing=self._is_closing and self._wants_mark
        )
        if not taken:
            return
        self._wants_mark = False
        commit = Commit()
        commit.number = number
        commit.last_sequence = self.log.edges.last
        commit.parts = []
        for block, extent in taken:
            part = Part()
            part.stored = self.blocks[block]
            part.logical = extent
            commit.parts.append(part)
        self._commit = commit
        if erases:
            self.erasing.add(number)
        if self.at_commit is not None:
            at_commit, self.at_commit = self.at_commit, None
            self._at_written = at_commit(number)

    def committed(self) -> None:
        """See CommitSource."""
        cdef Commit commit = self._commit
        cdef Part part = commit.next_part()
        assert part.extent is not None
        self._written(part)
        commit.written += 1
        self._answers += 1
        if commit.written < len(commit.parts):
            self.changed()
            return
        self._commit = None
        self._finish(commit)

    cdef int _finish(self, Commit commit) except -1:
        cdef list gone = self.log.committed()
        cdef list begun = self._begun(commit)
        cdef object erased = None
        self.number = commit.number
        self.durable_sequence = commit.last_sequence
        if self._at_written is not None:
            at_written, self._at_written = self._at_written, None
            at_written()
        if self.log.erased.count:
            erased = self.log.erased.copy()
            self.log.erased.clear()
        if gone or begun or erased is not None:
            gone = [self.blocks[block] for block in gone]
            durable = Durable(commit.number, bool(begun), gone, self._full(begun), erased)
            self._waiting_for_disk.append((self._answers, durable))
        if self._waiters:
            waiter = self._waiters.pop(commit.number, None)
            if waiter is not None:
                waiter.set_result(None)
        self._aftermath.committed()
        if self.listener is not None:
            self.listener.durable(self.durable_sequence)
        if self.log.is_dirty:
            self.changed()
        return 0

    cdef list _begun(self, Commit commit):
        """The blocks that this commit is the first one of."""
        cdef Part part
        return [part.stored.block for part in commit.parts if part.extent.offset == 0]

    cdef list _full(self, list begun):
        """The blocks in front of those."""
        cdef list blocks = self.log.blocks.blocks
        return [
            self.blocks[blocks[blocks.index(block) - 1]] for block in begun if block in blocks[1:]
        ]

    def on_disk(self, uint64_t commits) -> None:
        """See CommitSource."""
        while self._waiting_for_disk and self._waiting_for_disk[0][0] <= commits:
            self._aftermath.on_disk(self._waiting_for_disk.popleft()[1])

    def failed(self, error) -> None:
        """See CommitSource."""
        cdef Commit commit = self._commit
        self._commit = None
        begun = self.log.rolled_back()
        self.failures += 1
        self.error = error
        self.log.refuse_changes(lambda: error)
        self._orphans += [self.blocks[block] for block in begun]
        for stored in self._orphans:
            self.blocks.drop(stored)
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters.values():
            waiter.set_exception(error)
        self.at_commit = self._at_written = None
        self.erasing.discard(self.number + 1)
        if self.listener is not None:
            self.listener.failed(error)
        if commit is not None and not isinstance(error, StoreReadOnly):
            self._cut_back(commit)

    cdef int _cut_back(self, Commit commit) except -1:
        """Parts of the commit were written before the one that failed: they must not come back."""
        cdef list written = commit.parts[:commit.written]
        cdef list cut = []
        cdef Part part
        for part in written:
            part.stored.physical_end = part.extent.offset
            part.stored.allocated = part.extent.offset
            if part.stored not in self._orphans:
                cut.append(part.extent)
        if cut:
            self.pauses += 1
            self._spawn(self._cut_files(cut))
        return 0

    async def _cut_files(self, list extents):
        for extent in extents:
            await self._committer.forget(extent.file.path)
            await self._patiently(extent.file.truncate, extent.offset)
            try:
                await self._volume.read(extent.file.fsync)
            except OSError as error:    # which is never tried again
                raise StoreReadOnly(str(error)) from error
        self.resume()

    async def _patiently(self, function, *arguments):
        """Call it in a reader's thread until it lacks no space, descriptor or memory."""
        while True:
            try:
                return await self._volume.read(function, *arguments)
            except OSError as error:
                if not is_passing(error):
                    raise
            await asyncio.sleep(RETRY_S)

    def resumed(self) -> None:
        self.error = None
        self.log.refuse_changes(None)
        orphans, self._orphans = self._orphans, []
        if orphans:
            self._spawn(self._remove_orphans(orphans))
        self.changed()

    async def _remove_orphans(self, list orphans):
        await self._committer.forget(*(stored.path for stored in orphans))
        for stored in orphans:
            stored.close()
        await self._patiently(self.blocks.remove_files, [stored.path for stored in orphans])

    # A block's first extent

    async def _prepare(self, stored):
        """Once at a time: what is written through one open file is settled through the same."""
        try:
            for other in self.blocks.all:
                if other is not stored and other.file is not None:
                    await self._committer.settle(other.file)
            file = await self._volume.read(self.blocks.open_file, stored)
        finally:
            self._preparing = None
        if self._commit is None or self._commit.next_part().stored is not stored:
            file.close()  # taken back meanwhile
            return
        stored.file = file
        self.changed()

    def _spawn(self, work) -> None:
        """Work off the committer's path; if it fails, so does the store."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._worked)

    def _worked(self, task) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if is_passing(error):
            self.failed(StoreFull(str(error)))
            asyncio.get_running_loop().call_later(RETRY_S, self._try_again)
        elif not isinstance(self.error, StoreReadOnly):
            _logger.error(
                "%s: read-only until it is opened again: %r", self.blocks.directory, error
            )
            self.failed(error if isinstance(error, StoreReadOnly) else StoreReadOnly(repr(error)))

    def _try_again(self) -> None:
        if self._committer.is_attached(self) and not isinstance(self.error, StoreReadOnly):
            self.resumed()
