"""LogObserver: who is told that messages of a log go, one by one or all at once.

Promise
- Every way in which a live message goes is told: a removal of any kind before it happens; an
  emptied log, and a failed commit that is taken back, after it has.
- An observer changes nothing in the log. What it raises before a removal prevents that removal.
"""

from libc.stdint cimport uint32_t, uint64_t

from natsd.store.block cimport MsgBlock
from natsd.store.block_index cimport NO_SLOT


cdef class LogObserver:
    """This one does not care."""

    cdef int removed(self, uint64_t sequence, uint32_t slot, MsgBlock block) except -1:
        return 0

    cdef int emptied(self) except -1:
        return 0


cdef class CallbackObserver(LogObserver):
    """Calls `on_removed(sequence, slot)`, slot None for a message that is lost, and `on_emptied()`:
    for what is not per message."""

    def __init__(self, on_removed, on_emptied):
        self.on_removed = on_removed
        self.on_emptied = on_emptied

    cdef int removed(self, uint64_t sequence, uint32_t slot, MsgBlock block) except -1:
        self.on_removed(sequence, None if slot == NO_SLOT else slot)
        return 0

    cdef int emptied(self) except -1:
        self.on_emptied()
        return 0
