"""Declarations of account_publisher.pyx."""

from libc.stdint cimport int64_t

from natsd.core.routing cimport MatchResult, Message, Origin, SubList


cdef class AccountPublisher:
    cdef Reactor reactor
    cdef SubList sublist
    cdef object account        # natsd.accounts.Account
    cdef Origin own_origin
    cdef const Origin* origin  # of what is published
    cdef TrafficStats counters     # messages and bytes that sinks of any kind took
    cdef bint is_congested     # a recipient of the last send is over 75 % of max_pending
    cdef char* frame           # buffer for line, headers, data and CRLF of a message
    cdef Py_ssize_t frame_bytes     # size of `frame`

    # Return the recipients of a subject, never None. They may be kept while `live` is true.
    cdef MatchResult resolve(self, const char* subject, Py_ssize_t length)
    # Send a message to the recipients `to` and return the number of those that took it. `subject`
    # is the subject that recipients see; `to` may have been resolved for another one. `reply_len`
    # 0: no reply. `headers` is a whole header block, or of length 0.
    cdef int64_t send(
        self, MatchResult to, const char* subject, Py_ssize_t subject_len,
        const char* reply, Py_ssize_t reply_len, const char* headers, Py_ssize_t headers_len,
        const char* data, Py_ssize_t data_len,
    ) except -1
    cdef int64_t deliver(self, MatchResult to, Message* message) except -1
    cdef int64_t _publish(self, bytes subject, bytes data, bytes reply, bytes headers) except -1
    cdef char* room(self, Py_ssize_t need) except NULL
