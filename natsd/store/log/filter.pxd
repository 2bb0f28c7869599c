"""One or several NATS patterns, with a memo of the verdict on each slot of a SubjectIndex."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.core.routing cimport Interest


cdef enum:
    MEMO_PAGE_BITS = 12
    MEMO_PAGE = 1 << MEMO_PAGE_BITS     # slots

cdef struct NatsPattern:
    const char* text
    Py_ssize_t length
    bint is_literal


cdef class Filter:
    cdef readonly tuple patterns            # bytes, sorted, none a subset of another
    cdef readonly bint is_everything        # the pattern is `>`
    cdef readonly bint is_literal           # the only pattern is a subject without wildcards
    cdef NatsPattern* each
    cdef uint32_t count
    cdef uint32_t* literals                 # indexes in `each` of the patterns without wildcards
    cdef uint32_t literal_count
    cdef Interest wild                      # trie of wildcard patterns; None: none, or few
    cdef uint32_t** pages                   # by slot: birth << 1 | verdict; 0: unknown
    cdef uint32_t page_count
    cdef uint64_t frees                     # `frees` of the index at the first verdict
    cdef bint has_learned
    # The slots of the matching subjects, if they are few; see `collect_slots`.
    cdef SlotMarks few
    cdef uint64_t arrivals                  # log's arrivals at that time; 0: not collected yet

    cdef bint matches(self, const char* subject, Py_ssize_t length) noexcept nogil
    # Return the index in `each` of the first pattern that matches; -1: none.
    cdef int64_t first_match(self, const char* subject, Py_ssize_t length) except -2
    cdef bint matches_any(self, const char* subject, Py_ssize_t length) noexcept nogil
    cdef int64_t find_literal(self, const char* subject, Py_ssize_t length) noexcept nogil
    # Return the remembered verdict on the slot's present subject: 1, 0, or -1: unknown.
    cdef int known(self, SubjectIndex subjects, uint32_t slot) noexcept nogil
    cdef int learn(self, SubjectIndex subjects, uint32_t slot, bint verdict) except -1
