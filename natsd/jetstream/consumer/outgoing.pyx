"""A message as a consumer sends it: with its own subject, and a reply subject for the ack.

Its headers and payload follow, or with `headers_only` a `Nats-Msg-Size` header instead of the
payload.

    buffer   ┌────────────────────────────┬──────────────────────────┬─────────┬─────────────────┐
             │ $JS.ACK.<stream>.<name>.   │ 1.4711.815.<ts ns>.99    │ subject │ headers, if new │
             └────────────────────────────┴──────────────────────────┴─────────┴─────────────────┘
               written once                 for each message

Where a header is added (`add_header`), the headers are copied into a buffer of their own.

The subject is copied because the recipients of a message may change the log that holds it.

Source: ADR-15; nats-server's `ackReply`, version 1.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from natsd.core.decimal cimport DECIMAL_BYTES_MAX, put_decimal
from natsd.store.codec.records cimport RecordView

cdef enum:
    NUMBERS_BYTES_MAX = 5 * (DECIMAL_BYTES_MAX + 1)
    NAME_LINE_BYTES = 10        # "NATS/1.0\r\n"
    SIZE_HEADER_BYTES = 15 + DECIMAL_BYTES_MAX + 4


cdef class Outgoing:
    def __dealloc__(self):
        free(self.buffer)
        free(self.block)

    cdef int configure(self, str stream, str name, bint headers_only) except -1:
        cdef bytes prefix = f"$JS.ACK.{stream}.{name}.".encode()
        self.prefix_len = len(prefix)
        self.reserve(0)
        memcpy(self.buffer, <const char*> prefix, self.prefix_len)
        self.headers_only = headers_only
        return 0

    cdef int reserve(self, Py_ssize_t need) except -1:
        cdef char* grown
        need += self.prefix_len + NUMBERS_BYTES_MAX
        if need > self.capacity:
            grown = <char*> realloc(self.buffer, need)
            if grown == NULL:
                raise MemoryError
            self.buffer = grown
            self.capacity = need
        return 0

    cdef int compose(
        self, RecordView* view, uint64_t deliveries, uint64_t consumer_sequence, uint64_t pending
    ) except -1:
        cdef char* to
        cdef Py_ssize_t extra = 0
        if self.headers_only:
            extra = max(<Py_ssize_t> view.headers_len, <Py_ssize_t> NAME_LINE_BYTES)
            extra += SIZE_HEADER_BYTES
        self.reserve(view.subject_len + extra)
        to = put_decimal(self.buffer + self.prefix_len, deliveries)
        to[0] = c"."
        to = put_decimal(to + 1, view.sequence)
        to[0] = c"."
        to = put_decimal(to + 1, consumer_sequence)
        to[0] = c"."
        to = put_decimal(to + 1, <uint64_t> view.time_ns)
        to[0] = c"."
        to = put_decimal(to + 1, pending)
        self.reply = self.buffer
        self.reply_len = to - self.buffer
        memcpy(to, view.subject, view.subject_len)
        self.subject = to
        self.subject_len = view.subject_len
        self.headers = view.headers
        self.headers_len = view.headers_len
        self.data = view.data
        self.data_len = view.data_len
        if self.headers_only:
            self.add_size_header(to + view.subject_len, view)
        return 0

    cdef void add_size_header(self, char* to, RecordView* view) noexcept nogil:
        self.headers = to
        if view.headers_len:
            memcpy(to, view.headers, view.headers_len - 2)
            to += view.headers_len - 2      # without the empty line
        else:
            memcpy(to, b"NATS/1.0\r\n", NAME_LINE_BYTES)
            to += NAME_LINE_BYTES
        memcpy(to, b"Nats-Msg-Size: ", 15)
        to = put_decimal(to + 15, view.data_len)
        memcpy(to, b"\r\n\r\n", 4)
        self.headers_len = to + 4 - self.headers
        self.data_len = 0

    cdef int add_header(self, bytes line) except -1:
        cdef Py_ssize_t kept = max(self.headers_len - 2, <Py_ssize_t> NAME_LINE_BYTES)
        cdef Py_ssize_t need = kept + len(line) + 2
        cdef char* grown
        if need > self.block_capacity:
            grown = <char*> realloc(self.block, 2 * need)
            if grown == NULL:
                raise MemoryError
            self.block = grown
            self.block_capacity = 2 * need
        if self.headers_len:
            memcpy(self.block, self.headers, kept)      # without the empty line
        else:
            memcpy(self.block, b"NATS/1.0\r\n", NAME_LINE_BYTES)
        memcpy(self.block + kept, <const char*> line, len(line))
        memcpy(self.block + need - 2, b"\r\n", 2)
        self.headers = self.block
        self.headers_len = need
        return 0

    cdef Py_ssize_t size(self) noexcept nogil:
        return self.subject_len + self.reply_len + self.headers_len + self.data_len
