"""A filter of the slots that a block may have, for compiled callers."""

from libc.stdint cimport uint32_t, uint64_t

from natsd.store.block.blocks cimport BlockIndex


cdef class BlockBloomFilter:
    cdef uint64_t* words
    cdef uint64_t mask              # number of bits - 1

    cdef bint may_have(self, uint32_t slot) noexcept nogil
    cdef size_t memory_bytes(self) noexcept nogil


cdef BlockBloomFilter presence_of(const BlockIndex* index)
