"""An atomic batch that is being sent, for compiled callers."""

from libc.stdint cimport uint32_t, uint64_t

from natsd.jetstream.stream.checks cimport Batch, Entry


cdef struct Staged:             # a message: subject, headers and payload in a row
    size_t at                   # offset in `AtomicBatch.data`
    size_t data_len
    uint32_t subject_len
    uint32_t headers_len


cdef class AtomicBatch(Batch):
    cdef uint64_t count         # messages in the batch, which is the number of the last one
    cdef Staged* messages
    cdef uint64_t messages_room
    cdef char* data
    cdef size_t size
    cdef size_t capacity
    cdef size_t given_back

    cdef int add(self, Entry* entry) except -1
    # Fill `entry` with pointers into the staged message; they hold until the batch changes.
    cdef void get(self, uint64_t number, Entry* entry) noexcept nogil
    # Add a header to the last message; `line` ends in CRLF.
    cdef int add_header(self, const char* line, size_t length) except -1
    # Return the memory of the first `number` messages to the system; they are not read again.
    cdef void give_back(self, uint64_t number) noexcept nogil
    cdef size_t memory_bytes(self) noexcept nogil

    cdef int reserve(self, size_t more) except -1
