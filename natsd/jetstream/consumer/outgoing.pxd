"""A message as a consumer sends it; see outgoing.pyx."""

from libc.stdint cimport uint64_t

from natsd.store.codec.records cimport RecordView


cdef class Outgoing:
    # The result of `compose`, which holds until the next call; `headers` and `data` may point into
    # the record.
    cdef const char* subject
    cdef const char* reply
    cdef const char* headers
    cdef const char* data
    cdef Py_ssize_t subject_len
    cdef Py_ssize_t reply_len
    cdef Py_ssize_t headers_len
    cdef Py_ssize_t data_len

    cdef char* buffer           # prefix of the ack subject, its numbers, subject, headers
    cdef Py_ssize_t capacity
    cdef Py_ssize_t prefix_len
    cdef bint headers_only
    cdef char* block            # headers, if one was added
    cdef Py_ssize_t block_capacity

    cdef int configure(self, str stream, str name, bint headers_only) except -1
    cdef int compose(
        self, RecordView* view, uint64_t deliveries, uint64_t consumer_sequence, uint64_t pending
    ) except -1
    # Add a header, "<name>: <value>\r\n", to the composed message.
    cdef int add_header(self, bytes line) except -1
    # Return the bytes that count for a request's max_bytes and a rate limit.
    cdef Py_ssize_t size(self) noexcept nogil

    cdef int reserve(self, Py_ssize_t need) except -1
    cdef void add_size_header(self, char* to, RecordView* view) noexcept nogil
