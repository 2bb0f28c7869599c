"""The log of what must be undone if a commit fails, for compiled callers."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.store.block.array cimport Array

cdef struct Edges:              # first and last message of a log
    uint64_t first              # last + 1: no message
    uint64_t last
    int64_t first_time_ns       # 0: no message
    int64_t last_time_ns
    bint first_time_is_exact    # else the first message may be younger

cdef struct Removal:
    uint64_t sequence
    uint32_t slot
    uint32_t size


cdef class UndoLog:
    cdef Removal* removals      # oldest first
    cdef size_t removal_count
    cdef size_t capacity
    cdef list begun             # blocks that began since the durable point
    cdef list retired           # blocks at the front without a live message
    cdef Array expired          # of Expiry: entries removed from the expiries
    cdef Edges durable          # the edges at the durable point

    cdef int add(self, uint64_t sequence, uint32_t slot, uint32_t size) except -1
    cdef void drop(self, size_t removals) noexcept
    cdef int note_expired(self, Expiry item) except -1
    cdef int take_expired(self, UndoLog other) except -1    # `other` is of a later time
    cdef void drop_expired(self, uint32_t count) noexcept
