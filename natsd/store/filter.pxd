"""One or several NATS patterns, and what was found out about each slot of a SubjectIndex."""

from libc.stdint cimport int64_t, uint32_t

cdef enum:
    MEMO_PAGE_BITS = 12
    MEMO_PAGE = 1 << MEMO_PAGE_BITS     # slots

cdef struct NatsPattern:
    const char* text
    Py_ssize_t length


cdef class Filter:
    cdef readonly tuple patterns            # bytes, sorted, none a subset of another
    cdef readonly bint is_everything        # `>`
    cdef readonly bint is_literal           # one subject
    cdef NatsPattern* each
    cdef uint32_t count
    cdef uint32_t** pages                   # by slot: birth << 1 | verdict; 0: not known
    cdef uint32_t page_count

    cdef bint matches(self, const char* subject, Py_ssize_t length) noexcept nogil
    # 1, 0, or -1: this slot was not looked at since that birth.
    cdef int known(self, uint32_t slot, uint32_t birth) noexcept nogil
    cdef int learn(self, uint32_t slot, uint32_t birth, bint verdict) except -1
