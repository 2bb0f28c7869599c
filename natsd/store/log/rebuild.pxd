"""The declarations of rebuild.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.store.block.blocks cimport MsgBlock
from natsd.store.sequence_set cimport SequenceSet
from natsd.trie.in_memory cimport RecordTrie


cdef struct Span:
    uint64_t first
    uint64_t last
    uint64_t count


cdef class BlockShare:
    cdef readonly RecordTrie subjects       # name -> Span
    cdef readonly uint64_t first_sequence   # first live message; 0: there is none
    cdef readonly uint64_t last_sequence
    cdef readonly uint64_t count            # live messages
    cdef readonly uint64_t live_bytes
    cdef readonly int64_t first_time_ns
    cdef readonly int64_t last_time_ns      # of the last record, live or not; 0: no record
    cdef Expiry* expiries
    cdef uint32_t expiry_count
    cdef uint32_t expiry_capacity

    cdef int read(
        self, MsgBlock block, SequenceSet removed, uint64_t floor, uint32_t from_offset
    ) except -1 nogil
    cdef int note(
        self, const unsigned char* name, uint32_t length, uint64_t sequence
    ) except -1 nogil
    cdef int note_expiry(self, int64_t at_ns, uint64_t sequence) except -1 nogil
