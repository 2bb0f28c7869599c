"""A set of slots, for compiled callers."""

from libc.stdint cimport uint32_t, uint64_t

cdef enum:
    FEW_SLOTS = 128


cdef class SlotMarks:
    cdef uint64_t* words
    cdef uint32_t capacity              # in slots
    cdef readonly uint64_t count
    cdef uint64_t marked                # slots that were ever marked
    cdef uint32_t[FEW_SLOTS] few        # the first FEW_SLOTS of `marked`

    cdef int mark(self, uint32_t slot) except -1
    cdef bint has(self, uint32_t slot) noexcept nogil
    cdef void unmark(self, uint32_t slot) noexcept
