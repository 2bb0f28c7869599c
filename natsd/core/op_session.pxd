"""Declarations of op_session.pyx."""

from libc.stdint cimport int64_t


cdef class OpSession(OpHandler):
    cdef Settings settings
    cdef readonly bint trace             # its operations are logged
    cdef readonly int64_t in_msgs
    cdef readonly int64_t in_bytes
    cdef readonly int64_t out_msgs
    cdef readonly int64_t out_bytes

    # All times are nanoseconds of the monotonic clock; 0: never.
    cdef readonly int64_t start_ns
    cdef readonly int64_t rtt_ns
    cdef int64_t rtt_start_ns
    cdef int64_t ping_due_ns
    cdef int64_t authenticate_by_ns
    cdef int pings_out

    cdef int send_pong(self) except -1
    cdef int send_ping(self, int64_t now_ns) except -1
    cdef int ping_or_close(self, int64_t now_ns) except -1
