"""Declarations of subject_mappings.pyx."""

from libc.stdint cimport uint32_t, uint64_t


cdef enum:
    REMEMBERED = 256            # subjects whose mapping is remembered; a power of two


cdef class SubjectMemo:
    cdef list subjects          # REMEMBERED entries by hash: the subject, or None
    cdef list results           # what each of them is mapped to

    # The result for a subject; None: it is not remembered.
    cdef bytes find(self, const char* subject, Py_ssize_t length, uint64_t hash)
    cdef int keep(self, bytes subject, uint64_t hash, bytes result) except -1


cdef class WeightedDestinations:
    cdef readonly bytes source
    cdef list transforms        # SubjectTransform, or None: the subject itself
    cdef list ceilings          # a draw from 0 to 99 below the ceiling selects the transform
    cdef bint is_fixed          # a subject is always mapped to the same one

    cdef bytes map(self, bytes subject, uint32_t draw)


cdef class SubjectMappings:
    cdef readonly list mappings    # WeightedDestinations
    cdef dict exact             # source without wildcards -> WeightedDestinations
    cdef list wild              # WeightedDestinations of sources with wildcards, in their order
    cdef SubjectMemo memo
    cdef uint64_t random_state

    # What a published subject is mapped to; None: itself; empty: nothing, the message is lost.
    cdef bytes map(self, const char* subject, Py_ssize_t length)
    cdef WeightedDestinations find(self, bytes subject)
    cdef uint32_t draw(self) noexcept
