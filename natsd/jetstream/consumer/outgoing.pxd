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
    cdef object age             # returns a header line, or None (stream/staleness.py)
    cdef bytes age_line         # that of this slice; None: there was no message in it yet
    cdef bint adds_headers      # each message gets headers: `headers_only`, or `age`
    cdef char* block            # headers, if one was added
    cdef Py_ssize_t block_capacity

    cdef int configure(self, str stream, str name, bint headers_only) except -1
    # Have messages carry the header line that `age` returns, from the next slice on.
    cdef int mark_with(self, age) except -1
    # Begin a slice: the messages of one slice are equally old.
    cdef int begin_slice(self) except -1
    cdef int compose(
        self, RecordView* view, uint64_t deliveries, uint64_t consumer_sequence, uint64_t pending
    ) except -1
    # Add a header, "<name>: <value>\r\n", to the composed message.
    cdef int add_header(self, bytes line) except -1
    # Return the bytes that count for a request's max_bytes and a rate limit.
    cdef Py_ssize_t size(self) noexcept nogil

    cdef int reserve(self, Py_ssize_t need) except -1
    cdef bytes own_age(self)
    cdef int add_headers(self, char* to, RecordView* view, bytes age) except -1
