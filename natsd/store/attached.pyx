"""A committer's sources: where each stands, and the answers that it gets.

    IDLE ──take──▶ OUT ──commit──▶ IDLE        FULL: space is being looked for
                    └──failed──▶ FULL, DEAD    DEAD: nothing will be written any more

A Round is many extents on their way to their files and, those that are not large, to the journal.

Compiled since a thousand streams may commit at once: what the loop pays for each is here, in
file_commits.pyx and in the log.
"""

import logging

from libc.stdint cimport int64_t

from natsd.store.extent cimport Extent, add_writing

_logger = logging.getLogger("natsd.store.committer")


cdef class Attached:
    """One source, and what is known about it."""

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
        """What the source has to write: then it is OUT; None: nothing, now."""
        cdef Extent extent = self.source.take_extent()
        if extent is not None:
            self.state = OUT
        return extent

    def commit(self, bint is_on_disk) -> None:
        """Its extent is written. Nothing if a sync of its file failed meanwhile: then it knows."""
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
        """A store that cannot take its answer must not keep others from theirs."""
        try:
            callback(*what)
        except Exception:
            _logger.exception("a store failed to take the answer to its commit")
            self.state = DEAD

    @property
    def is_over_limit(self) -> bool:
        """More is waiting than the source may buffer."""
        return (
            self.source.buffered_bytes > self.buffered_bytes_max
            or self.source.buffered_msgs > self.buffered_msgs_max
        )

    def wake(self) -> None:
        """Let those go on who wait for less to be waiting, or for nothing to be written."""
        if self.is_over_limit and self.state in (IDLE, OUT):
            return
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


cdef class Round:
    """`taken`: (Attached, Extent) each, in order."""

    def __init__(self, list taken not None, int64_t journal_bytes_max):
        self.taken = taken
        self.journal_bytes_max = journal_bytes_max

    def add_writing(self, job) -> None:
        """Have the job write each to its file, as a part of its own."""
        cdef Extent extent
        for _, extent in self.taken:
            job.begin_part()
            add_writing(job, extent)
        job.end_parts()

    def small(self) -> list:
        """Those that the journal is to have: what is larger is synced, not written twice."""
        cdef Extent extent
        cdef Attached attached
        cdef list small = []
        for attached, extent in self.taken:
            if extent.size <= self.journal_bytes_max:
                small.append((attached, extent))
        return small

    def commit_journaled(self) -> list:
        """The journal is on disk: answer those that it has. The others."""
        cdef Extent extent
        cdef Attached attached
        cdef list large = []
        for attached, extent in self.taken:
            if extent.size <= self.journal_bytes_max:
                attached.commit(True)
            else:
                large.append((attached, extent))
        return large


def write_extent(job, Extent extent not None) -> None:
    """Add the steps that write it to a job."""
    add_writing(job, extent)


def idle_sources(dict dirty not None) -> tuple:
    """Of the dirty ones: those that are synced at once, and the others."""
    cdef Attached attached
    cdef list at_once = []
    cdef list later = []
    for attached in dirty.values():
        if attached.state == IDLE:
            (at_once if attached.is_synced_at_once else later).append(attached)
    return at_once, later
