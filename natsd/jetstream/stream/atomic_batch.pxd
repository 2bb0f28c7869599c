"""An atomic batch that is being sent, for compiled callers."""

from libc.stdint cimport uint32_t, uint64_t

from natsd.jetstream.stream.admission cimport Batch
from natsd.jetstream.stream.entry cimport Entry


cdef struct Staged:             # a message: its subject, headers and payload stand in a row
    size_t at                   # in the batch's bytes
    size_t data_len
    uint32_t subject_len
    uint32_t headers_len


cdef class AtomicBatch(Batch):
    cdef uint64_t count         # of its messages; the last one's number
    cdef Staged* messages
    cdef uint64_t messages_room
    cdef char* data
    cdef size_t size
    cdef size_t capacity
    cdef size_t given_back

    cdef int add(self, Entry* entry) except -1
    # Point into what is staged; good until the batch is changed.
    cdef void get(self, uint64_t number, Entry* entry) noexcept nogil
    # Add a header to the last message: `line` ends in CRLF.
    cdef int add_header(self, const char* line, size_t length) except -1
    # Give back the memory of the first so many messages: they are not asked for again.
    cdef void give_back(self, uint64_t number) noexcept nogil
    cdef size_t memory_bytes(self) noexcept nogil

    cdef int reserve(self, size_t more) except -1
