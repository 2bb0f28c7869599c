"""A file store's commits: they write the changes of its log to disk, and roll back on failure.

    append …  changed() ─▶ committer ─▶ take_extent ─▶ LogCommits.take: a commit of one extent, or
                            of one for each block that it spans, written one after the other
    all parts written    ─▶ committed   durable_sequence moves, `synced` returns
    all of them on disk  ─▶ on_disk     blocks and bytes no longer needed go to `PostCommitWork`
    a part failed        ─▶ failed      everything since the last commit is rolled back

Promise
- A commit counts only as a whole: its parts are answered together. Until then nothing that it
  removes is touched on disk.
- A block's file is created, in a thread, before its first extent; by then the block before it is
  wholly on disk. So damage in a block that has a successor was not caused by a torn write.
- Out of space: StoreFull for all waiters and, until there is space, for each append; files end
  where the last commit did. Other errors: StoreReadOnly, until the store is opened again.
- A store with nothing to write has nothing in progress and keeps nothing in memory for it.
- A store that writes behind (`write_behind`) collects changes for `BEHIND_S`, or until half of what
  may be buffered is reached, or somebody waits for them.

This is compiled because a thousand streams may commit at once: the event loop's work for each of
them is here, in commit_source.pyx and in the log.
"""

import asyncio
import contextlib
from collections import deque

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.store.block.blocks cimport BlockExtent, MsgBlock
from natsd.store.log.message_log cimport LogCommits, MessageLog
from natsd.store.wal.entries cimport Extent

from natsd.store.disk.disk import is_transient
from natsd.store.errors import StoreError, StoreReadOnly
from natsd.store.wal.entries import grown_allocation

RETRY_S = 1.0   # seconds until opening a block's file is tried again
BEHIND_S = 0.2  # time for which a store that writes behind collects changes


@cython.no_gc           # belong to no reference cycle, and there are many
@cython.freelist(64)
cdef class Part:
    """One extent of a commit; `extent` is set once it is being written."""

    cdef object stored
    cdef BlockExtent logical
    cdef Extent extent


class Durable:
    """The work that a commit allows once it is on disk.

    `number`: the commit's number. `begins`: whether it is the first commit of a block. `gone`:
    blocks that are not needed any more. `full`: blocks to which nothing is appended any more,
    because the next block has begun. `erased`: sequences of messages to overwrite, or None.
    """

    __slots__ = ("begins", "erased", "full", "gone", "number")

    def __init__(self, number, begins, gone, full, erased):
        self.number = number
        self.begins = begins
        self.gone = gone
        self.full = full
        self.erased = erased


cdef class FileCommits(CommitSource):
    """The commits of one open FileStore, which creates it."""

    cdef readonly MessageLog log
    cdef readonly LogCommits log_commits
    cdef readonly object blocks
    cdef readonly uint64_t durable_sequence
    cdef readonly uint64_t number           # of the last written commit
    cdef readonly uint64_t failures         # number of rollbacks
    cdef readonly int pauses                # > 0: no extent is taken
    cdef readonly set erasing               # numbers of commits whose erasures are not finished
    # Called once with the commit's number when the next one is taken; the function that it returns,
    # or None, is called when that commit is written.
    cdef public object at_commit            # or None
    cdef public object listener             # DurabilityListener, or None
    cdef object _at_written
    cdef object _volume
    cdef object _committer
    cdef object _aftermath
    # The commit that is being written, with the number after `number`; its parts are written one
    # after the other.
    cdef list _parts                        # None: no commit is being written
    cdef Py_ssize_t _num_written            # number of written parts
    cdef bint _is_held                      # the replicas have not committed it: nothing is written
    cdef uint64_t _last_sequence            # last sequence of the commit
    cdef bint _is_behind                    # changes are written when many of them have come
    cdef object _later                      # timer after which they are written, or None
    cdef object _waiting_for_disk           # deque of (writes, Durable)
    cdef dict _waiters
    cdef object _preparing                  # StoredBlock whose file is being created, or None
    cdef bint _is_closing
    cdef bint _wants_mark
    cdef set _tasks
    cdef list _orphans                      # begun blocks that were rolled back
    cdef uint64_t _buffered_bytes_max
    cdef uint64_t _buffered_msgs_max

    def __init__(
        self, volume, MessageLog log not None, blocks, aftermath, *, uint64_t number,
        uint64_t buffered_bytes_max, uint64_t buffered_msgs_max,
    ):
        self.log = log
        self.log_commits = LogCommits(log)
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
        self._buffered_bytes_max = buffered_bytes_max
        self._buffered_msgs_max = buffered_msgs_max

    # Interface to the store

    @property
    def buffered_bytes(self) -> int:
        """Bytes appended and not committed, mostly in the last block."""
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
    def is_over_limit(self) -> bool:
        """Whether more bytes or messages are uncommitted than may be."""
        cdef uint64_t last = self.log.edges.last
        if last > self.durable_sequence + self._buffered_msgs_max:
            return True
        return self.buffered_bytes > self._buffered_bytes_max

    async def room(self):
        """Wait until the log is within its limit, or nothing can be written."""
        with contextlib.suppress(StoreError):
            while self.is_over_limit and self.error is None:
                await self._until_written(self.number + 1)

    def write_behind(self) -> None:
        """Write many changes together: another log has them, and they count without the write."""
        self._is_behind = True

    def changed(self) -> None:
        """Note that the log has changed, so that the committer asks for an extent."""
        if self._is_behind and self._parts is None and not self._must_write_now():
            if self._later is None:
                self._later = asyncio.get_running_loop().call_later(BEHIND_S, self._write_collected)
            return
        self._committer.dirty(self)

    cdef bint _must_write_now(self) except -1:
        cdef uint64_t waiting = self.log.edges.last - self.durable_sequence
        return (
            len(self._waiters) > 0 or self._wants_mark or waiting > self._buffered_msgs_max // 2
            or self.buffered_bytes > self._buffered_bytes_max // 2
        )

    def _write_collected(self) -> None:
        self._later = None
        self._committer.dirty(self)

    async def synced(self):
        """Wait until all changes so far are committed. Raises StoreFull or StoreReadOnly."""
        cdef uint64_t number = self.number
        if self.error is not None:
            raise self.error
        if self._parts is not None:
            number += 1
        if self.log_commits.has_changes():
            number += 1
        if number > self.number:
            await self._until_written(number)

    async def _until_written(self, uint64_t number):
        """Wait until the commit with that number is written. Raises StoreFull or StoreReadOnly."""
        waiter = self._waiters.get(number)
        if waiter is None:
            waiter = asyncio.get_running_loop().create_future()
            waiter.add_done_callback(asyncio.Future.exception)  # the caller may have been cancelled
            self._waiters[number] = waiter
        self.changed()
        await asyncio.shield(waiter)

    async def mark(self):
        """Write a commit mark even if nothing is pending. Raises StoreFull or StoreReadOnly."""
        await self.synced()
        self._wants_mark = True
        await self._until_written(self.number + 1)

    async def close(self):
        """Commit everything, then a mark that says that all before it is on disk."""
        await self.synced()
        if self.blocks.all:
            await self.until_on_disk()
            self._is_closing = True
            await self.mark()
        await self.until_on_disk()

    async def until_on_disk(self):
        """Wait until all commits are on disk and the work that they allow is handed on."""
        while self._waiting_for_disk:
            await self._settle_files()
            self.on_disk(self.writes)

    async def settled(self):
        """Wait until all commits are on disk, whatever `sync_interval` is.

        Raises StoreReadOnly or StoreFull.
        """
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
        """End all writing, while no extent is out, and raise `error` for the waiters."""
        self.commit_state = DEAD
        if self.error is None:
            self.error = error
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters.values():
            waiter.set_exception(self.error)

    async def pause(self):
        """Take no extent until `resume`; return once none is out.

        A commit that waits for the stream's replicas is not out. Raises StoreError if the extent
        that was out failed; then nothing is paused.
        """
        self.pauses += 1
        try:
            while self._parts is not None and not self._is_held and self.error is None:
                await self._until_written(self.number + 1)
        except BaseException:
            self.resume()
            raise

    def resume(self) -> None:
        """Undo one `pause`."""
        self.pauses -= 1
        self.changed()

    # Interface to the committer

    cpdef take_extent(self):
        """Return the next extent to write; None if there is none now. See CommitSource."""
        cdef Part part
        if self.error is not None:
            return None
        if self._parts is None and (self.pauses or not self._begin()):
            return None
        if self._is_held:
            if self.pauses or self.log_commits.awaits_replicas():
                return None
            self._is_held = False
        part = <Part> self._parts[self._num_written]
        if part.stored.file is None:
            if self._preparing is not part.stored:
                self._preparing = part.stored
                self._spawn(self._prepare(part.stored))
            return None
        part.extent = self._extent(part)
        return part.extent

    cdef bint _begin(self) except -1:
        """Take the log's changes as the next commit; return whether there are any."""
        cdef Part part
        cdef bint erases = self.log.erasures.count > 0
        cdef list taken = self.log_commits.take(
            self.number + 1, self._wants_mark, self._is_closing and self._wants_mark
        )
        if not taken:
            return False
        self._wants_mark = False
        self._last_sequence = self.log.edges.last
        self._num_written = 0
        self._is_held = self.log_commits.awaits_replicas()
        self._parts = []
        for block, extent in taken:
            part = Part()
            part.stored = self.blocks[block]
            part.logical = extent
            self._parts.append(part)
        if erases:
            self.erasing.add(self.number + 1)
        if self.at_commit is not None:
            at_commit, self.at_commit = self.at_commit, None
            self._at_written = at_commit(self.number + 1)
        return True

    cdef Extent _extent(self, Part part):
        """Return the extent that appends the part to its block's file.

        It reserves more space and syncs the directory, if necessary.
        """
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

    cpdef committed(self):
        """Note that the extent is written; the commit counts once all of its parts are."""
        cdef Part part = <Part> self._parts[self._num_written]
        cdef Extent extent = part.extent
        cdef object stored = part.stored
        stored.physical_end = extent.offset + extent.size
        if extent.allocate_to:
            stored.allocated = max(stored.allocated, extent.allocate_to)
        if extent.new_in is not None:
            stored.is_named = True
        self._num_written += 1
        if self._num_written < len(self._parts):
            self.changed()
        else:
            self._finish()

    cdef int _finish(self) except -1:
        """Make a written commit count, and answer those that wait for it."""
        cdef list parts = self._parts
        cdef list gone = self.log_commits.committed()
        self._parts = None
        self.number += 1
        self.durable_sequence = self._last_sequence
        if self._at_written is not None:
            at_written, self._at_written = self._at_written, None
            at_written()
        self._defer(parts, gone)
        if self._waiters:
            waiter = self._waiters.pop(self.number, None)
            if waiter is not None:
                waiter.set_result(None)
        self._aftermath.committed()
        if self.listener is not None:
            self.listener.durable(self.durable_sequence)
        if self.log_commits.has_changes():
            self.changed()
        return 0

    cdef int _defer(self, list parts, list gone) except -1:
        """Note the work that must wait until the commit is on disk, if there is any."""
        cdef Part part
        cdef list begun = [part.stored.block for part in parts if part.extent.offset == 0]
        cdef object erased = None
        if self.log_commits.erased.count:
            erased = self.log_commits.erased.copy()
            self.log_commits.erased.clear()
        if gone or begun or erased is not None:
            gone = [self.blocks[block] for block in gone]
            durable = Durable(self.number, bool(begun), gone, self._full(begun), erased)
            self._waiting_for_disk.append((self.writes, durable))
        return 0

    cdef list _full(self, list begun):
        """Return the blocks in front of the begun ones."""
        cdef list blocks = self.log.blocks.blocks
        return [
            self.blocks[blocks[blocks.index(block) - 1]] for block in begun if block in blocks[1:]
        ]

    cpdef on_disk(self, uint64_t writes):
        """Hand on the work of the commits that are on disk now. See CommitSource."""
        while self._waiting_for_disk and self._waiting_for_disk[0][0] <= writes:
            self._aftermath.on_disk(self._waiting_for_disk.popleft()[1])

    cpdef failed(self, error):
        """Roll back everything since the last commit, and raise `error` for the waiters."""
        cdef list begun = self.log_commits.rolled_back()
        cdef list written = [] if self._parts is None else self._parts[:self._num_written]
        self._parts = None
        self._is_held = False
        self.failures += 1
        self.log.refuse_changes(self._refusal)
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
        if not isinstance(error, StoreReadOnly):
            self._cut_back(written)

    def _refusal(self):
        """Return the error that every change of the log raises while nothing can be written."""
        return self.error

    cdef int _cut_back(self, list written) except -1:
        """Cut off parts that were written before another failed: they must not reappear."""
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
        """Cut files back to the start of their extents, and sync them. Raises StoreReadOnly."""
        for extent in extents:
            await self._committer.forget(extent.file.path)
            await self._patiently(extent.file.truncate, extent.offset)
            try:
                await self._volume.read(extent.file.fsync)
            except OSError as error:    # a failed sync is never retried
                raise StoreReadOnly(str(error)) from error
        self.resume()

    async def _patiently(self, function, *arguments):
        """Call the function in a reader's thread until it lacks no space, descriptor or memory."""
        while True:
            try:
                return await self._volume.read(function, *arguments)
            except OSError as error:
                if not is_transient(error):
                    raise
            await asyncio.sleep(RETRY_S)

    cpdef resumed(self):
        """Accept changes again: there is space."""
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

    # The file of a new block

    async def _prepare(self, stored):
        """Create the block's file, after the files of all other blocks are on disk.

        Only one call at a time: bytes written through one open file are synced through the same.
        """
        try:
            for other in self.blocks.all:
                if other is not stored and other.file is not None:
                    await self._committer.settle(other.file)
            file = await self._volume.read(self.blocks.open_file, stored)
        finally:
            self._preparing = None
        if self._parts is None or (<Part> self._parts[self._num_written]).stored is not stored:
            file.close()  # was rolled back meanwhile
            return
        stored.file = file
        self.changed()

    def _spawn(self, work) -> None:
        """Run work beside the committer's; if it fails, so does the store."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._worked)

    def _worked(self, task) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._committer.fail(self, error)
