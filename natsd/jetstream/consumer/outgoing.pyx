"""A message as a consumer sends it: with its own subject, and a reply subject for the ack.

Its headers and payload follow, or with `headers_only` a `Nats-Msg-Size` header instead of the
payload. From a read replica, a `Natsd-Staleness` header says how old the state may be that the
message was read from; it is made once for all messages of a slice.

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
        self.adds_headers = headers_only or self.age is not None
        return 0

    cdef int mark_with(self, age) except -1:
        self.age = age
        self.age_line = None
        self.adds_headers = self.headers_only or age is not None
        return 0

    cdef int begin_slice(self) except -1:
        self.age_line = None
        return 0

    cdef bytes own_age(self):
        """Return the header line of this slice; empty: messages do not say how old they are."""
        if self.age_line is None:
            self.age_line = b"" if self.age is None else self.age()
        return self.age_line

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
        cdef bytes age = None
        cdef Py_ssize_t extra = 0
        if self.adds_headers:
            age = self.own_age()
            extra = max(<Py_ssize_t> view.headers_len, <Py_ssize_t> NAME_LINE_BYTES)
            extra += SIZE_HEADER_BYTES + len(age)
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
        if self.adds_headers:
            self.add_headers(to + view.subject_len, view, age)
        return 0

    cdef int add_headers(self, char* to, RecordView* view, bytes age) except -1:
        self.headers = to
        if view.headers_len:
            memcpy(to, view.headers, view.headers_len - 2)
            to += view.headers_len - 2      # without the empty line
        else:
            memcpy(to, b"NATS/1.0\r\n", NAME_LINE_BYTES)
            to += NAME_LINE_BYTES
        if self.headers_only:
            memcpy(to, b"Nats-Msg-Size: ", 15)
            to = put_decimal(to + 15, view.data_len)
            memcpy(to, b"\r\n", 2)
            to += 2
            self.data_len = 0
        memcpy(to, <const char*> age, len(age))
        memcpy(to + len(age), b"\r\n", 2)
        self.headers_len = to + len(age) + 2 - self.headers
        return 0

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
