"""What a consumer has still to read: see backlog.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.store.filter cimport Filter
from natsd.store.log cimport NEEDS_BLOCK, MessageLog, Outcome
from natsd.store.search cimport NumPending


cdef class Backlog:
    cdef MessageLog log
    cdef Filter filter                  # None: every message
    cdef readonly uint64_t next         # behind the start list, all before it was read or passed by
    cdef uint64_t first                 # what `next` was at first
    cdef uint64_t search_from           # nothing matches in next .. search_from - 1
    cdef int64_t count                  # filtered: matches in next .. visible
    cdef NumPending counting            # None: `count` is right
    cdef readonly bint must_count       # begin to count with the next slice

    cdef uint64_t* starts               # what comes first, in order; with GONE_BIT: it is gone
    cdef Py_ssize_t start_count
    cdef Py_ssize_t start_at
    cdef Py_ssize_t starts_live         # from start_at on, as far as is known

    cdef int set_filter(self, Filter wanted) except -1
    cdef int begin(self, uint64_t next_sequence, uint64_t resume, starts) except -1
    cdef int appeared(self, uint64_t sequence) except -1
    cdef int vanished(self, uint64_t sequence) except -1
    # Some of the counting. True: all is counted. Raises ColdBlock.
    cdef bint count_some(self, uint64_t visible, uint64_t budget) except? -1
    # How many visible messages have not been read. Exact unless `is_counting`.
    cdef int64_t size(self, uint64_t visible) noexcept
    # The next to read, up to `visible`: DONE and `found`, GONE (there is none), NEEDS_BLOCK
    # (`log.wanted`), PENDING (ask again).
    cdef Outcome find(self, uint64_t visible, uint64_t* found) except? NEEDS_BLOCK
    # Is this message, visible or not, still to be read?
    cdef bint is_unread(self, uint64_t sequence) noexcept
    # That one, as `find` gave it, is read.
    cdef int passed(self, uint64_t sequence) except -1
    # Count anew, and look again from there on.
    cdef int look_again(self, uint64_t from_sequence) except -1

    cdef uint64_t next_start(self) noexcept
    cdef Py_ssize_t place_of_start(self, uint64_t sequence) noexcept nogil
    cdef int free_starts(self) except -1
    cdef int drop_start(self, uint64_t sequence) except -1
