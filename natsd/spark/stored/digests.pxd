"""Digests of messages for audits (digests.pyx)."""

from libc.stdint cimport int64_t, uint64_t

from natsd.store.block.array cimport Array
from natsd.store.codec.records cimport RecordView
from natsd.store.sequence_set cimport SequenceSet


cdef class Digests:
    cdef readonly uint64_t first_sequence   # 0: no message yet
    cdef readonly uint64_t last_sequence
    cdef readonly uint64_t count
    cdef readonly uint64_t data_bytes
    cdef readonly int64_t first_time_ns
    cdef readonly int64_t last_time_ns
    cdef readonly uint64_t descents         # messages older than the one before
    cdef uint64_t chunk
    cdef uint64_t chunk_count
    cdef uint64_t chunk_digest
    cdef SequenceSet wanted                 # chunks whose rows are kept; None: no chunk's
    cdef Array[3] chunks                    # uint64_t: number, count, digest
    cdef Array[3] ids                       # int64_t: hash, sequence, time
    cdef Array[6] rows                      # int64_t: sequence, time, four hashes

    cdef int add_all(self, Records records) except -1 nogil
    cdef int add_one(self, const RecordView* view) except -1 nogil
    cdef int end_chunk(self) except -1 nogil
    cdef int keep_row(self, const uint64_t* parts) except -1 nogil
    cdef list take_columns(self, Array* columns, int count)
