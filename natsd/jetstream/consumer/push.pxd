"""The deliver subject of a push consumer, and the speed of deliveries; see push.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.core.network cimport AccountPublisher
from natsd.core.routing cimport MatchResult


cdef class PushSubject:
    cdef AccountPublisher publisher
    cdef bytes subject          # None: a pull consumer
    cdef bytes control_prefix   # "$JS.FC.<stream>.<consumer>."
    cdef MatchResult to
    cdef uint64_t slice         # slice in which `to` was looked up
    cdef bint is_active         # the deliver subject has a subscriber
    cdef object age             # returns a header line for statuses, or None (stream/staleness.py)

    # Flow control; window 0: none.
    cdef int64_t window         # bytes that may be on their way
    cdef int64_t under_way
    cdef int64_t asked_about    # bytes on their way that the open request covers
    cdef bytes control          # reply subject of the open request, or None

    cdef int64_t heartbeat_ns   # 0: none
    cdef int64_t heartbeat_due_ns

    # Rate limit; rate 0: none.
    cdef double rate            # bytes per second
    cdef double burst
    cdef double tokens
    cdef int64_t tokens_ns      # time at which there were that many tokens

    cdef int configure(self, str stream, str name, settings, int64_t now_ns) except -1
    # Return the subscribers; None: there are none.
    cdef MatchResult listeners(self, uint64_t slice)
    cdef bint is_stalled(self) noexcept
    # Return the time at which that many bytes may be sent; 0: now.
    cdef int64_t due_ns(self, Py_ssize_t size, int64_t now_ns) noexcept
    # Note that a message was sent: `wire_size` counts for the window, `size` for the rate.
    cdef int sent(self, Py_ssize_t size, Py_ssize_t wire_size, int64_t now_ns) except -1
    cdef bint wants_control(self, Py_ssize_t wire_size) noexcept
    cdef int ask_control(self) except -1
    # Tell whether a message answers the open request; its subject is one of the flow control
    # subjects.
    cdef bint controlled(self, const char* subject, Py_ssize_t length) noexcept
    cdef int send_heartbeat(self, uint64_t consumer_sequence, uint64_t stream_sequence) except -1
    cdef int send_block(self, bytes block, bytes reply) except -1
