"""See direct_answer.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.core.match_result cimport MatchResult
from natsd.core.outlet cimport Outlet
from natsd.jetstream.timestamp cimport Second
from natsd.store.record cimport RecordView


cdef class DirectAnswer:
    cdef Outlet outlet
    cdef bytes intro            # headers up to the subject
    cdef char* block            # the header block that is being laid out
    cdef size_t room
    cdef Second second          # of the last message

    # `pending` and `last` tell of a message that is one of several; `pending` -1: it is not.
    cdef int send(
        self, MatchResult to, const char* reply, Py_ssize_t reply_len, const RecordView* view,
        int64_t pending, uint64_t last,
    ) except -1
    cdef int send_bare(
        self, MatchResult to, const char* reply, Py_ssize_t reply_len, const RecordView* view
    ) except -1
    cdef char* make_room(self, size_t need) except NULL
