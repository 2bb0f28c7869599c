"""The answer to a direct get; see direct_answer.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.core.network cimport AccountPublisher
from natsd.core.routing cimport MatchResult
from natsd.core.timestamp cimport WrittenSecond
from natsd.store.codec.records cimport RecordView


cdef class DirectAnswer:
    cdef AccountPublisher publisher
    cdef bytes intro            # the headers up to the value of Nats-Subject
    cdef object staleness       # callable that returns a header line; None: no read replica
    cdef char* block            # the header block that is being written
    cdef size_t room
    cdef WrittenSecond second   # the formatted time of the last message

    # `pending` and `last` are for a message of a batch; `pending` -1: it is a single one.
    cdef int send(
        self, MatchResult to, const char* reply, Py_ssize_t reply_len, const RecordView* view,
        int64_t pending, uint64_t last,
    ) except -1
    cdef int send_bare(
        self, MatchResult to, const char* reply, Py_ssize_t reply_len, const RecordView* view
    ) except -1
    cdef char* make_room(self, size_t need) except NULL
