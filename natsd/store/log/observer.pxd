"""The declarations of observer.pyx."""

from libc.stdint cimport uint32_t, uint64_t

from natsd.store.block.blocks cimport MsgBlock


cdef class LogObserver:
    # Called before a live message is removed, for whatever reason: its record can still be viewed.
    # `slot` is NO_SLOT (block_index.pxd) if the message is lost and its subject unknown.
    cdef int removed(self, uint64_t sequence, uint32_t slot, MsgBlock block) except -1
    # Called after all messages were removed at once without a call of `removed`: the observer must
    # count again.
    cdef int emptied(self) except -1
    # Called after a rollback: removed messages came back, and appended ones are gone. Unless it is
    # overridden, it calls `emptied`.
    cdef int rolled_back(self) except -1


cdef class CallbackObserver(LogObserver):
    cdef object on_removed
    cdef object on_emptied
