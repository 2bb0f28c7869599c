"""What a publish has to do with schedules and delays, for compiled callers."""

from libc.stdint cimport int64_t, uint64_t

from natsd.jetstream.stream.entry cimport Entry
from natsd.jetstream.stream.headers cimport PublishHeaders
from natsd.jetstream.stream.preconditions cimport Preconditions
from natsd.jetstream.stream.rollups cimport Rollups
from natsd.store.log cimport MessageLog


cdef class Scheduled:
    cdef MessageLog log
    cdef Rollups rollups
    cdef Preconditions preconditions    # who words refusals
    cdef object rules                   # ScheduleRules
    cdef public object schedules        # told of stored schedules; None: the stream has none
    cdef public object delays           # keeps messages that wait; None: the stream takes none
    cdef bytes headers                  # of the entry that was checked last
    cdef bint is_waiting                # `schedules` waits for something to be durable

    cdef int configure(self, object rules, Preconditions preconditions) except -1

    # The answer to a publish that is refused, or None: then the entry is what is to be stored.
    cdef bytes check(self, Entry* entry, PublishHeaders* headers)
    cdef bytes check_delayed(self, Entry* entry, uint64_t size, int64_t max_msg_size)
    # The sequence of a message that waits and has the entry's id; 0: there is none.
    cdef uint64_t find_id(self, Entry* entry, int64_t window_ns) except? 0
    cdef bint is_unsaved(self, uint64_t sequence) except -1

    # Of what is applied. True: its answer has to wait.
    cdef bint delay(self, Entry* entry) except -1
    cdef bint note(self, Entry* entry) except -1

    cdef int await_product(self) except -1
    cdef int settle(self, uint64_t visible) except -1
    cdef int roll_back(self, uint64_t durable) except -1
    cdef bint purge(self, uint64_t sequence, bytes subject) except -1
