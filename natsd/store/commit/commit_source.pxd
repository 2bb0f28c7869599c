"""The declarations of commit_source.pyx."""

from libc.stdint cimport uint64_t


cpdef enum State:
    IDLE = 0
    OUT = 1                     # an extent is being written
    FULL = 2                    # space, a descriptor or memory is lacking
    DEAD = 3                    # nothing will be written any more


cdef class CommitSource:
    cdef readonly uint64_t writes       # number of extents that were written
    cdef public bint is_synced_at_once  # acknowledged only once its bytes are synced
    cdef public State commit_state
    cdef public object error            # StoreError that led to FULL or DEAD, or None
    cdef public object probe            # (file, offset, size) of the write that found no space
    cdef public bint is_probing

    cpdef take_extent(self)
    cpdef committed(self)
    cpdef on_disk(self, uint64_t writes)
    cpdef failed(self, error)
    cpdef resumed(self)
