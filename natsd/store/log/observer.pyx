"""LogObserver: an interface that a log calls when messages are removed, one by one or all at once.

Promise
- Every way in which a live message disappears causes a call: a removal of any kind before it
  happens; an emptied log, and the rollback of changes that were not committed, afterwards.
- An observer changes nothing in the log. An exception that it raises before a removal prevents that
  removal.
"""

from libc.stdint cimport uint32_t, uint64_t

from natsd.store.block.blocks cimport MsgBlock, NO_SLOT


cdef class LogObserver:
    """An observer that does nothing."""

    cdef int removed(self, uint64_t sequence, uint32_t slot, MsgBlock block) except -1:
        return 0

    cdef int emptied(self) except -1:
        return 0

    cdef int rolled_back(self) except -1:
        return self.emptied()


cdef class CallbackObserver(LogObserver):
    """An observer that calls Python functions, for uses that are not per message.

    It calls `on_removed(sequence, slot)`, with slot None if the message is lost, and
    `on_emptied()`.
    """

    def __init__(self, on_removed, on_emptied):
        self.on_removed = on_removed
        self.on_emptied = on_emptied

    cdef int removed(self, uint64_t sequence, uint32_t slot, MsgBlock block) except -1:
        self.on_removed(sequence, None if slot == NO_SLOT else slot)
        return 0

    cdef int emptied(self) except -1:
        self.on_emptied()
        return 0
