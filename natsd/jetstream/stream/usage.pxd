"""Bytes that streams hold, per account and for the whole server, for compiled callers."""

from libc.stdint cimport int64_t


cdef struct StorageUse:         # of one kind of storage; in bytes of records
    int64_t used                # on this server
    int64_t reserved            # by streams with max_bytes
    int64_t limit               # -1: no limit
    int64_t elsewhere           # used on other servers
    int64_t allowed             # what limit and `elsewhere` leave to `used`


cdef class Usage:
    cdef readonly Usage server          # the total that includes this one; None: this is it
    cdef StorageUse memory
    cdef StorageUse file
    cdef readonly object refusal        # ErrorId that answers a publish beyond the limit
    cdef readonly int replicas          # of the streams of a tier; 0: any

    cdef int add(self, bint is_memory, int64_t change) except -1    # adds here and in `server`
    cdef bint exceeds(self, bint is_memory, int64_t more) noexcept nogil    # of this object only
    cpdef int64_t counted_copies(self, int64_t copies)
    cdef int allow(self, StorageUse* use) except -1
