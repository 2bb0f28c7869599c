"""The answers that refuse publishes, on the leader of a stream's replicas."""

from libc.stdint cimport uint64_t

from natsd.jetstream.stream.checks cimport AckQueue, Answer
from natsd.jetstream.stream.state cimport Actor, Scheduler


cdef class Refusals:
    cdef public object confirming       # callback(count), after which `confirm` is called; or None
    cdef AckQueue acks                  # all answers
    cdef Scheduler scheduler
    cdef Actor ingest                   # sends them
    cdef uint64_t answered              # answers that were sent
    cdef uint64_t confirmed             # the first so many answers may be sent, refusals too
    cdef bint is_confirming

    # Tell whether the first answer may be sent, and is; if not, have it confirmed.
    cdef bint may_send(self, const Answer* answer) except -1
    # Let all answers be sent that there are.
    cdef int confirm_all(self) noexcept
