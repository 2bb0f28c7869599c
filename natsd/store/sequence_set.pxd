"""A set of sequences for compiled callers; sequence_set.pyi has the Python interface."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

include "sequence_page.pxd"


cdef class SequenceSet:
    cdef Entry* entries         # sorted by page; a FULL entry may span many pages
    cdef uint32_t entry_count
    cdef uint32_t capacity
    cdef readonly uint64_t count

    cdef uint32_t find_entry(self, uint64_t page) noexcept nogil
    cdef Entry* open_entry(self, uint32_t at, uint64_t key) except NULL
    cdef void close_entry(self, uint32_t at, uint32_t number) noexcept nogil
    cdef int break_full(self, uint32_t at, uint64_t page) except -1
    cdef void join_full(self, uint32_t at) noexcept nogil
    cdef int64_t add_in_page(self, uint64_t page, uint32_t first, uint32_t last) except -1
    cdef int64_t discard_in_page(self, uint64_t page, uint32_t first, uint32_t last) except -1
    cdef uint64_t add_pages(self, uint64_t page, uint64_t upto) except? 0
    cdef uint64_t discard_pages(self, uint64_t page, uint64_t upto) except? 0

    # Return how many sequences were added or removed. Requires first <= last.
    cdef uint64_t add_run(self, uint64_t first, uint64_t last) except? 0
    cdef uint64_t discard_run(self, uint64_t first, uint64_t last) except? 0
    cdef bint has(self, uint64_t sequence) noexcept nogil
    # Find the lowest present (absent) sequence at or above `sequence`; return whether there is one.
    cdef bint find_present(self, uint64_t sequence, uint64_t* found) noexcept nogil
    cdef bint find_absent(self, uint64_t sequence, uint64_t* found) noexcept nogil
    # Find the highest absent sequence at or below `sequence`.
    cdef bint find_absent_back(self, uint64_t sequence, uint64_t* found) noexcept nogil
    # Find the run that contains or follows `sequence`, without its part below `sequence`.
    cdef bint find_run(self, uint64_t sequence, uint64_t* first, uint64_t* last) noexcept nogil
    cdef uint64_t count_through(self, uint64_t sequence) noexcept nogil
    cdef void empty(self) noexcept nogil
