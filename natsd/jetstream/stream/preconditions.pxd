"""The demands of a publisher's headers, for compiled callers."""

from libc.stdint cimport int64_t, uint64_t

from natsd.jetstream.stream.state cimport StreamReaders


cdef enum Lifetime:
    NO_LIFETIME = 0
    LIFETIME = 1
    BAD_LIFETIME = 2


cdef class Preconditions:
    cdef StreamReaders stream
    cdef bytes name
    cdef bint allows_rollup
    cdef bint allows_lifetimes
    cdef int64_t lifetime_s_min     # shorter lifetimes are raised to it
    cdef bytes raised           # the header block with the lifetime that was raised last
    cdef bint counts            # StreamCounters checks increments
    cdef dict refusals          # ErrorId -> the answer, where it never varies
    cdef object fetching        # the task that fetches the block that a check needs, or None

    # Return the refusal of a publish, or None. `subject` is the stored one.
    cdef bytes check(
        self, PublishHeaders* headers, const char* subject, Py_ssize_t subject_len
    )
    cdef bytes check_late(self, PublishHeaders* headers, const char* last_id, size_t last_id_len)
    # Check the lifetime of a message that would be stored.
    cdef bytes check_lifetime(self, PublishHeaders* headers)
    # Set when the entry expires. A lifetime that is raised is written into its headers, which hold
    # until the next one is raised.
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
    # Find the last sequence of a subject. DONE: found; GONE: none; NEEDS_BLOCK: not known now.
    cdef int last_of(self, const char* subject, Py_ssize_t length, uint64_t* found) except -2
    cdef int last_of_pattern(self, bytes pattern, uint64_t* found) except -2
