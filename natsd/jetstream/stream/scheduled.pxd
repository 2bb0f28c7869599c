"""The schedules and delays of publishes, for compiled callers."""

from libc.stdint cimport int64_t, uint64_t

from natsd.store.log.message_log cimport MessageLog


cdef class Scheduled:
    cdef MessageLog log
    cdef Rollups rollups
    cdef Preconditions preconditions    # makes the refusals
    cdef object rules                   # ScheduleRules
    cdef public object schedules        # keeps the stored schedules; None: the stream has none
    cdef public object delays           # keeps delayed messages; None: the stream takes none
    cdef bytes headers                  # headers of the entry that was checked last
    cdef bint is_waiting                # `schedules` waits for something to be durable

    cdef int configure(self, object rules, Preconditions preconditions) except -1

    # Return the refusal of a publish, or None: then the entry is the one to store.
    cdef bytes check(self, Entry* entry, PublishHeaders* headers)
    cdef bytes check_delayed(self, Entry* entry, uint64_t size, int64_t max_msg_size)
    # Return the sequence of the delayed message with the entry's id; 0: none.
    cdef uint64_t find_id(self, Entry* entry, int64_t window_ns) except? 0
    cdef bint is_unsaved(self, uint64_t sequence) except -1

    # `delay` and `note` apply an entry. True: its answer has to wait.
    cdef bint delay(self, Entry* entry) except -1
    cdef bint note(self, Entry* entry) except -1

    cdef int await_product(self) except -1
    cdef int settle(self, uint64_t visible) except -1
    cdef int roll_back(self, uint64_t durable) except -1
    cdef bint purge(self, uint64_t sequence, bytes subject) except -1
