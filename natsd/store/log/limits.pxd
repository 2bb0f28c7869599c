"""The limits of a log, for compiled callers."""

from libc.stdint cimport int64_t, uint64_t


cdef int check_append(MessageLog log, uint64_t size, uint64_t payload) except -1
cdef int refuse_over_limit(MessageLog log, int64_t slot, uint64_t size) except -1
