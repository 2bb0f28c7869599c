"""The removals that a rollup demands, for compiled callers."""

from libc.stdint cimport uint64_t

from natsd.jetstream.stream.state cimport Actor, StreamReaders
from natsd.store.log.message_log cimport MessageLog


cdef class Rollups:
    cdef StreamReaders stream
    cdef MessageLog log
    cdef AckQueue acks                  # with the answers that wait for a rollup to end
    cdef Actor ingest                   # submitted when a rollup ended
    # deque of (subject, sequence) of the rollups that the task does
    cdef object waiting
    cdef object rolling                 # that task, or None

    # Remove what the appended entry replaces. True: the removal goes on in a task; an answer for
    # the entry's sequence must be held until it is done.
    cdef bint roll_up(self, Entry* entry) except -1

    # Hold the answer that was pushed last until all rollups of the task are done, if there are any.
    cdef int hold_answer(self, uint64_t sequence) except -1

    cdef bint remove_before(self, Entry* entry) except -1
