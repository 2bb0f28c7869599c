"""The declarations of attached.pyx."""

from libc.stdint cimport int64_t, uint64_t


cpdef enum State:
    IDLE = 0
    OUT = 1                     # an extent of it is being written
    FULL = 2                    # the store is out of space
    DEAD = 3                    # nothing will be written any more


cdef class CommitSourceState:
    cdef readonly object source
    cdef readonly bint is_synced_at_once
    cdef readonly int64_t buffered_bytes_max
    cdef readonly int64_t buffered_msgs_max
    cdef public State state
    cdef public object error    # StoreError that led to FULL or DEAD
    cdef readonly uint64_t commits
    cdef public object probe    # (file, offset, size) of the write that found no space
    cdef public bint is_probing
    cdef public list waiters


cdef class CommitBatch:
    cdef readonly list taken
    cdef readonly int64_t journal_bytes_max
    cdef public bint is_in_journal
