"""The stored messages of a stream, published again once they are durable."""

from libc.stdint cimport int64_t, uint64_t

from natsd.core.routing cimport SubjectTransform
from natsd.jetstream.stream.state cimport Actor, StreamReaders
from natsd.store.codec.records cimport RecordView


cdef struct Republished:
    uint64_t sequence
    # sequence of the message before it on its subject, when it was stored; 0: none
    uint64_t previous


cdef class Republisher(Actor):
    cdef StreamReaders stream
    cdef readonly object settings       # RepublishSettings
    cdef SubjectTransform transform
    cdef bint headers_only
    cdef bytes name
    cdef Republished* ring      # a ring; its capacity is a power of two
    cdef uint64_t ring_mask
    cdef uint64_t head
    cdef uint64_t tail
    cdef object fetching        # the task that brings a block into memory, or None

    # Note a message that was appended.
    cdef int note(
        self, const char* subject, Py_ssize_t length, uint64_t sequence, uint64_t previous
    ) except -1
    cdef int forget_above(self, uint64_t sequence) except -1
    cdef uint64_t waiting(self) noexcept nogil
    cdef int grow(self) except -1
    cdef int publish(self, Republished* item, RecordView* view) except -1
    cdef bytes headers_of(self, Republished* item, RecordView* view)
