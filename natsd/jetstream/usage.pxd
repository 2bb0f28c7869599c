"""How many bytes streams hold, of an account and of the whole server, for compiled callers."""

from libc.stdint cimport int64_t


cdef struct StorageUse:         # of one kind of storage; bytes are those of records
    int64_t used
    int64_t reserved            # by streams with max_bytes
    int64_t limit               # -1: none


cdef class Usage:
    cdef readonly Usage server          # whose total this is a part of; None: it is the server's
    cdef StorageUse memory
    cdef StorageUse file

    cdef int add(self, bint is_memory, int64_t change) except -1    # used, here and in `server`
    cdef bint exceeds(self, bint is_memory, int64_t more) noexcept nogil    # this one's limit only
