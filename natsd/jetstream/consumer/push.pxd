"""Where a push consumer delivers, and how fast: see push.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.core.match_result cimport MatchResult
from natsd.core.outlet cimport Outlet


cdef class PushSubject:
    cdef Outlet outlet
    cdef bytes subject          # None: a pull consumer
    cdef bytes control_prefix   # "$JS.FC.<stream>.<consumer>."
    cdef MatchResult to
    cdef uint64_t slice         # when `to` was looked up
    cdef bint is_active         # somebody listens

    # Flow control; window 0: none
    cdef int64_t window         # bytes that may be under way
    cdef int64_t under_way
    cdef int64_t asked_about    # of them, those that the outstanding request covers
    cdef bytes control          # reply subject of the outstanding request, or None

    cdef int64_t heartbeat_ns   # 0: none
    cdef int64_t heartbeat_due_ns

    # Rate limit; rate 0: none
    cdef double rate            # bytes a second
    cdef double burst
    cdef double tokens
    cdef int64_t tokens_ns      # when that many were there

    cdef int configure(self, str stream, str name, settings, int64_t now_ns) except -1
    # Who listens; None: nobody does.
    cdef MatchResult listeners(self, uint64_t slice)
    cdef bint is_stalled(self) noexcept
    # When that many bytes may go; 0: now.
    cdef int64_t due_ns(self, Py_ssize_t size, int64_t now_ns) noexcept
    # A message went out: `wire_size` for the window, `size` for the rate.
    cdef int sent(self, Py_ssize_t size, Py_ssize_t wire_size, int64_t now_ns) except -1
    cdef bint wants_control(self, Py_ssize_t wire_size) noexcept
    cdef int ask_control(self) except -1
    # Was it the answer to what was asked? The subject is one of those to listen to.
    cdef bint controlled(self, const char* subject, Py_ssize_t length) noexcept
    cdef int send_heartbeat(self, uint64_t consumer_sequence, uint64_t stream_sequence) except -1
    cdef int send_block(self, bytes block, bytes reply) except -1
