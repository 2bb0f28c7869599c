"""What a stream stores is published again, once it is durable."""

from libc.stdint cimport int64_t, uint64_t

from natsd.core.outlet cimport Outlet
from natsd.jetstream.scheduler cimport Actor
from natsd.jetstream.stream.transform cimport SubjectTransform


cdef struct Republished:
    uint64_t sequence
    uint64_t previous           # the one before it on its subject, when it was stored


cdef class Republisher(Actor):
    cdef object stream          # StreamCore
    cdef SubjectTransform transform
    cdef bint headers_only
    cdef Republished* ring
    cdef uint64_t ring_mask
    cdef uint64_t head
    cdef uint64_t tail
    cdef object fetching        # the task that brings a block into memory, or None
    cdef char* headers
    cdef Py_ssize_t headers_room

    cdef int note(
        self, const char* subject, Py_ssize_t length, uint64_t sequence, uint64_t previous
    ) except -1
    cdef int forget_above(self, uint64_t sequence) except -1
    cdef uint64_t waiting(self) noexcept nogil
