"""The expiry times of messages, for compiled callers."""

from libc.stdint cimport int64_t, uint64_t

from natsd.store.block.array cimport Array
from natsd.store.sequence_set cimport SequenceSet

cdef struct Expiry:
    int64_t at_ns
    uint64_t sequence

cdef struct Heap:
    Expiry* items
    size_t count
    size_t capacity


cdef class Expiries:
    cdef Heap heap
    cdef Heap old               # moves into `heap` step by step, without removed messages
    cdef size_t tidy_at

    cdef int add(
        self, int64_t at_ns, uint64_t sequence, uint64_t first, SequenceSet dead,
        Array* dropped,
    ) except -1
    cdef bint peek(self, Expiry* out) noexcept nogil
    cdef void pop(self) noexcept nogil
