"""What a publisher's headers demand of the stream, for compiled callers."""

from libc.stdint cimport int64_t, uint64_t

from natsd.jetstream.stream.core cimport StreamCore
from natsd.jetstream.stream.entry cimport Entry
from natsd.jetstream.stream.headers cimport PublishHeaders


cdef enum Lifetime:
    NO_LIFETIME = 0
    LIFETIME = 1
    BAD_LIFETIME = 2


cdef class Preconditions:
    cdef StreamCore stream
    cdef bytes name
    cdef bint allows_rollup
    cdef bint allows_lifetimes
    cdef int64_t lifetime_s_min     # shorter ones are raised to it
    cdef bytes raised           # the headers that say so, of the last one
    cdef bint counts            # increments are looked at by Counters
    cdef dict refusals          # ErrorId -> the answer, where it is always the same
    cdef object fetching        # the task that brings in the block that a check needs, or None

    # The answer to a publish that is refused, or None. `subject` is the one it is stored under.
    cdef bytes check(
        self, PublishHeaders* headers, const char* subject, Py_ssize_t subject_len
    )
    cdef bytes check_late(self, PublishHeaders* headers, const char* last_id, size_t last_id_len)
    cdef bytes check_lifetime(self, PublishHeaders* headers)    # of one that is to be stored
    # Sets when the entry goes. A lifetime that is raised is written into its headers, which are
    # good until the next one is.
    cdef int expire(self, Entry* entry, PublishHeaders* headers) except -1
    cdef bytes refuse(self, object error_id)
    cdef int fetch(self, object block) except -1

    cdef bytes check_stream(self, PublishHeaders* headers)
    cdef bytes check_increment(self, PublishHeaders* headers)
    cdef bytes check_subject_sequence(
        self, PublishHeaders* headers, const char* subject, Py_ssize_t subject_len
    )
    cdef Lifetime lifetime_of(self, PublishHeaders* headers) except? BAD_LIFETIME
    cdef bytes check_rollup(self, PublishHeaders* headers)
    cdef bytes rollup_failed(self, str text)
    cdef bytes wrong_sequence(self, uint64_t sequence)
    # DONE with the last sequence, GONE: none; NEEDS_BLOCK: it cannot be told now.
    cdef int last_of(self, const char* subject, Py_ssize_t length, uint64_t* found) except -2
    cdef int last_of_pattern(self, bytes pattern, uint64_t* found) except -2
