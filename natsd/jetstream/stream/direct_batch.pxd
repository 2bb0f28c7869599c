"""Direct get of many messages; see direct_batch.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.core.routing cimport MatchResult
from natsd.store.codec.records cimport RecordView
from natsd.store.log.message_log cimport NEEDS_BLOCK, Outcome
from natsd.store.log.subjects cimport Filter


cdef class DirectBatch:
    cdef StreamReaders readers
    cdef DirectAnswer answer
    cdef bytes reply
    cdef Filter filter          # None: all messages, or those of the list
    cdef list listed            # sequences to send; None: the messages that match
    cdef Py_ssize_t at          # index in the list
    cdef uint64_t from_sequence
    cdef bint is_bare
    cdef int64_t messages_max
    cdef int64_t bytes_left
    cdef readonly int64_t pending
    cdef readonly int64_t sent
    cdef readonly uint64_t last
    cdef readonly bint is_done
    cdef readonly bint is_congested     # the client has much unread data

    cdef Outcome find(self, uint64_t* sequence) except? NEEDS_BLOCK
    cdef Outcome view(self, uint64_t sequence, RecordView* view) except? NEEDS_BLOCK
    cdef int passed(self, uint64_t sequence) except -1
    cdef int send(self, MatchResult to, const RecordView* view) except -1
