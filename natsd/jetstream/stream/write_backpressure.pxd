"""The messages that are not durable yet, and the back-pressure on their publishers."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.core.network cimport Reactor, Recipient
from natsd.jetstream.stream.checks cimport AckQueue


cdef enum Pressure:
    ROOM = 0
    OVER = 1                    # publishers must wait
    FULL = 2                    # publishes are refused with 429

cdef struct BacklogMark:
    uint64_t sequence
    uint64_t total              # bytes noted up to that sequence


cdef class WriteBackpressure(Recipient):
    cdef Reactor reactor
    cdef AckQueue acks          # the answers that wait
    cdef Republisher republisher        # None: nothing is republished
    cdef uint64_t msgs_max
    cdef uint64_t bytes_max
    cdef uint64_t last          # highest sequence that was noted
    cdef uint64_t durable
    cdef uint64_t total         # bytes of all messages noted so far
    cdef uint64_t total_durable
    cdef BacklogMark* marks     # a ring; its capacity is a power of two
    cdef uint64_t marks_mask
    cdef uint64_t head
    cdef uint64_t tail
    cdef int64_t over_since_ns  # monotonic time; 0: within the limits

    cdef int note(self, uint64_t sequence, uint64_t size) except -1
    cdef int settle(self, uint64_t durable) except -1
    cdef Pressure pressure(self) noexcept nogil
    cdef int roll_back(self, uint64_t durable) except -1
    cdef int grow(self) except -1
