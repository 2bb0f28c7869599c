"""The wanted messages of one block, as rows (records.pyx)."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.spark.rows.message_batch cimport MessageBatch
from natsd.store.block.blocks cimport Scan
from natsd.store.codec.records cimport RecordView
from natsd.store.log.subjects cimport Filter
from natsd.store.sequence_set cimport SequenceSet


cdef class Records:
    cdef Scan scan
    cdef SequenceSet dead
    cdef Filter wanted
    cdef readonly uint64_t first_sequence
    cdef readonly uint64_t last_sequence
    cdef int64_t start_time_ns
    cdef int64_t end_time_ns
    cdef uint32_t place                     # next position in the scan's index

    cdef bint view(self, uint32_t place, RecordView* view) noexcept nogil
    cdef bint is_wanted(self, const RecordView* view) noexcept nogil
    cdef uint64_t expected(self) noexcept nogil
    cdef uint64_t found(self) noexcept nogil
    cdef int append_rows(self, MessageBatch batch) except -1 nogil
