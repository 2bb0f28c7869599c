"""The declarations of extent.pyx."""

from libc.stdint cimport int64_t, uint64_t


cdef class Extent:
    cdef readonly object file
    cdef readonly object data
    cdef readonly object new_in
    cdef readonly int64_t offset
    cdef readonly int64_t allocate_to
    cdef readonly int64_t size
    cdef readonly uint64_t identity
