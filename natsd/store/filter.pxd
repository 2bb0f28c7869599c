"""One or several NATS patterns, and what was found out about each slot of a SubjectIndex."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.core.interest cimport Interest

from natsd.store.slot_marks cimport SlotMarks
from natsd.store.subject_index cimport SubjectIndex

cdef enum:
    MEMO_PAGE_BITS = 12
    MEMO_PAGE = 1 << MEMO_PAGE_BITS     # slots

cdef struct NatsPattern:
    const char* text
    Py_ssize_t length
    bint is_literal


cdef class Filter:
    cdef readonly tuple patterns            # bytes, sorted, none a subset of another
    cdef readonly bint is_everything        # `>`
    cdef readonly bint is_literal           # one subject
    cdef NatsPattern* each
    cdef uint32_t count
    cdef uint32_t* literals                 # the places of those without wildcards
    cdef uint32_t literal_count
    cdef Interest wild                      # those with wildcards; None: there are none, or few
    cdef uint32_t** pages                   # by slot: birth << 1 | verdict; 0: not known
    cdef uint32_t page_count
    cdef uint64_t frees                     # of the index, when the first verdict was noted
    cdef bint has_learned
    # The slots it wants, if they are few, as of some number of arrivals: ReadableLog.narrow.
    cdef SlotMarks few
    cdef uint64_t arrivals                  # 0: not looked for yet

    cdef bint matches(self, const char* subject, Py_ssize_t length) noexcept nogil
    # The place of the first pattern that matches, in `each`; -1: none does.
    cdef int64_t first_match(self, const char* subject, Py_ssize_t length) except -2
    cdef bint matches_any(self, const char* subject, Py_ssize_t length) noexcept nogil
    cdef int64_t find_literal(self, const char* subject, Py_ssize_t length) noexcept nogil
    # 1, 0, or -1: not known about the subject that this slot is now of.
    cdef int known(self, SubjectIndex subjects, uint32_t slot) noexcept nogil
    cdef int learn(self, SubjectIndex subjects, uint32_t slot, bint verdict) except -1
