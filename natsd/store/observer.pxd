"""See observer.pyx."""

from libc.stdint cimport uint32_t, uint64_t

from natsd.store.block cimport MsgBlock


cdef class LogObserver:
    # A live message is about to go, whatever the cause: its record can still be viewed. `slot`
    # NO_SLOT (block_index.pxd): it is lost, and which subject it had is not known.
    cdef int removed(self, uint64_t sequence, uint32_t slot, MsgBlock block) except -1
    # Many went at once, untold, or what had gone is back: count anew. It has happened already.
    cdef int emptied(self) except -1


cdef class CallbackObserver(LogObserver):
    cdef object on_removed
    cdef object on_emptied
