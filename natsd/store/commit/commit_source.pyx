"""The committer's sources: the state of each, and the answers that it gets.

    IDLE ──take──▶ OUT ──commit──▶ IDLE        FULL: the store is out of space
                    └──failed──▶ FULL, DEAD    DEAD: nothing will be written any more

A CommitBatch is a set of extents on their way to their files and, unless they are large, to the
journal.

This is compiled because a thousand streams may commit at once: the event loop's work for each of
them is here, in file_commits.pyx and in the log.
"""

import logging

from libc.stdint cimport int64_t

from natsd.store.wal.entries cimport Extent, add_writing

_logger = logging.getLogger("natsd.store.commit.committer")


cdef class CommitSourceState:
    """A source with its commit state."""

    def __init__(
        self, source, bint is_synced_at_once, int64_t buffered_bytes_max, int64_t buffered_msgs_max
    ):
        self.source = source
        self.is_synced_at_once = is_synced_at_once
        self.buffered_bytes_max = buffered_bytes_max
        self.buffered_msgs_max = buffered_msgs_max
        self.state = IDLE
        self.waiters = []

    def take(self):
        """Return the source's next extent, which makes it OUT; None: nothing to write now."""
        cdef Extent extent = self.source.take_extent()
        if extent is not None:
            self.state = OUT
        return extent

    def commit(self, bint is_on_disk) -> None:
        """Tell the source that its extent is written, and with `is_on_disk` that it is durable.

        Does nothing if the source is not OUT any more: a sync of its file failed, and it was told.
        """
        if self.state != OUT:
            return
        self.state = IDLE
        self.commits += 1
        self.answer(self.source.committed)
        if is_on_disk:
            self.answer(self.source.on_disk, self.commits)
        if self.waiters:
            self.wake()

    def answer(self, callback, *what) -> None:
        """Call a source's callback; an exception must not keep others from their answers."""
        try:
            callback(*what)
        except Exception:
            _logger.exception("a store failed to take the answer to its commit")
            self.state = DEAD

    @property
    def is_over_limit(self) -> bool:
        """Whether more is waiting than the source may buffer."""
        return (
            self.source.buffered_bytes > self.buffered_bytes_max
            or self.source.buffered_msgs > self.buffered_msgs_max
        )

    def wake(self) -> None:
        """Resume the waiters, unless too much is still buffered and can be written."""
        if self.is_over_limit and self.state in (IDLE, OUT):
            return
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


cdef class CommitBatch:
    """A set of extents that are written together; `taken` lists (CommitSourceState, Extent)."""

    def __init__(self, list taken not None, int64_t journal_bytes_max):
        self.taken = taken
        self.journal_bytes_max = journal_bytes_max

    def add_writing(self, job) -> None:
        """Add the writing of each extent to the job, each as a part of its own."""
        cdef Extent extent
        for _, extent in self.taken:
            job.begin_part()
            add_writing(job, extent)
        job.end_parts()

    def small(self) -> list:
        """Return the extents for the journal; larger ones are synced, not written twice."""
        cdef Extent extent
        cdef CommitSourceState attached
        cdef list small = []
        for attached, extent in self.taken:
            if extent.size <= self.journal_bytes_max:
                small.append((attached, extent))
        return small

    def commit_journaled(self) -> list:
        """Answer the extents in the journal, which is on disk; return the others."""
        cdef Extent extent
        cdef CommitSourceState attached
        cdef list large = []
        for attached, extent in self.taken:
            if extent.size <= self.journal_bytes_max:
                attached.commit(True)
            else:
                large.append((attached, extent))
        return large


def write_extent(job, Extent extent not None) -> None:
    """Add the steps that write the extent to a job."""
    add_writing(job, extent)


def idle_sources(dict dirty not None) -> tuple:
    """Return the idle ones of the dirty sources: (synced at once, synced later)."""
    cdef CommitSourceState attached
    cdef list at_once = []
    cdef list later = []
    for attached in dirty.values():
        if attached.state == IDLE:
            (at_once if attached.is_synced_at_once else later).append(attached)
    return at_once, later
