"""CommitSource: a store that has something to write, and its state for the committer.

A store that has something to write calls `Committer.dirty(source)`. Later the committer serves it:

    store (a CommitSource)                      committer
    take_extent() ─────────────── Extent ─────> worker thread: allocate, pwrite, sync
      goes on filling a buffer                   (or, with many others, in the volume's journal)
      of its own meanwhile
    committed()  <── written; with `sync_interval: always` also on disk: acknowledge
    on_disk(n)   <── the first n extents are on disk: remove, overwrite, unlink
    failed(e)    <── nothing of the extent counts: roll back

    IDLE ──take_extent──▶ OUT ──acknowledge──▶ IDLE    FULL: waits until there is space again
     │                     │                                 │
     └──────failed─────────┴──▶ FULL, DEAD                   └──resumed──▶ IDLE

Promise
- At most one extent of a source is out at a time. Each is answered by exactly one call, of
  `committed` or of `failed`, on the thread that runs the committer.
- The committer reads `data` in another thread until that call: the bytes must neither move nor
  change. It drops its reference a little after the call.
- Before `failed(StoreFull)` the file was cut back to `offset`: it is as it was before the extent.
  The committer looks for space by itself and calls `resumed()` once there is some; until then it
  takes no extent.
- After `failed(StoreReadOnly)` nothing is known about the file from `offset` on, and nothing is
  written for this source until it is opened again. The call can come while no extent is out: if a
  sync on the timer or a checkpoint failed, or if the store itself called `Committer.fail`.

This is compiled because a thousand streams may commit at once: the event loop's work for each of
them is here, in file_commits.pyx and in the log.
"""

import logging

from libc.stdint cimport uint64_t

_logger = logging.getLogger("natsd.store.commit.committer")


cdef class CommitSource:
    """A source of extents; subclasses override `take_extent` and the answers that they need."""

    def __cinit__(self, *arguments, **named):
        self.commit_state = IDLE

    cpdef take_extent(self):
        """Return the extent to write now; None if there is none."""
        raise NotImplementedError

    cpdef committed(self):
        """Note that the extent is written: its messages may be acknowledged."""
        raise NotImplementedError

    cpdef on_disk(self, uint64_t writes):
        """Note that the first `writes` extents are on disk: what they replace may go."""

    cpdef failed(self, error):
        """Note that the extent, if one is out, is not written.

        `error` is StoreFull (roll back and go on later) or StoreReadOnly.
        """
        raise NotImplementedError

    cpdef resumed(self):
        """Note that there is space again after a StoreFull."""

    # Calls of the committer

    def acknowledge(self, bint is_on_disk) -> None:
        """Answer the extent that is out: it is written, and with `is_on_disk` durable.

        Does nothing if the source is not OUT any more: a sync of its file failed, and it was told.
        """
        if self.commit_state != OUT:
            return
        self.commit_state = IDLE
        self.writes += 1
        try:
            self.committed()
            if is_on_disk:
                self.on_disk(self.writes)
        except Exception:
            self.broke()

    def answer(self, callback, *what) -> None:
        """Call `failed`, `resumed` or `on_disk`, which must not keep others from their answers."""
        try:
            callback(*what)
        except Exception:
            self.broke()

    def broke(self) -> None:
        """Log the exception of an answer, and write nothing of the source any more."""
        _logger.exception("a store failed to take the answer to its commit")
        self.commit_state = DEAD


def idle_sources(dirty not None) -> tuple:
    """Return the idle ones of the dirty sources: (synced at once, synced later)."""
    cdef CommitSource source
    cdef list at_once = []
    cdef list later = []
    for source in dirty:
        if source.commit_state == IDLE:
            (at_once if source.is_synced_at_once else later).append(source)
    return at_once, later


def still_out(list taken not None) -> list:
    """Return the (source, extent) pairs whose source still waits for its answer.

    The others were told that a sync of their file failed.
    """
    cdef CommitSource source
    return [(source, extent) for source, extent in taken if source.commit_state == OUT]
