"""What a message replaces, for compiled callers."""

from libc.stdint cimport uint64_t

from natsd.jetstream.scheduler cimport Actor
from natsd.jetstream.stream.ack_queue cimport AckQueue
from natsd.jetstream.stream.core cimport StreamCore
from natsd.jetstream.stream.entry cimport Entry
from natsd.store.log cimport MessageLog


cdef class Rollups:
    cdef StreamCore stream
    cdef MessageLog log
    cdef AckQueue acks                  # with the answers that wait for a rollup to end
    cdef Actor ingest                   # submitted when one did
    cdef object waiting                 # (subject, sequence) of those that take longer
    cdef object rolling                 # the task that does them, or None

    # Remove what the entry, which was appended, replaces. True: that goes on in a task; an answer
    # for its sequence is held until it is done.
    cdef bint roll_up(self, Entry* entry) except -1

    # Hold the answer that was pushed last until all that are under way are done, if any is.
    cdef int hold_answer(self, uint64_t sequence) except -1

    cdef bint remove_before(self, Entry* entry) except -1
