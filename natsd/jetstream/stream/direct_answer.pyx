"""The answer to a direct get: a stored message with headers that say which message it is.

    NATS/1.0 · own headers · Nats-Stream · Nats-Subject · Nats-Sequence · Nats-Time-Stamp
             [ · Nats-Num-Pending · Nats-Last-Sequence ]     of one of several
             [ · Natsd-Staleness ]                           from a read replica

Source: ADR-31; nats-server's `getDirectRequest` and `getDirectMulti`.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from natsd.core.decimal cimport DECIMAL_BYTES_MAX, put_decimal
from natsd.core.network cimport AccountPublisher
from natsd.core.routing cimport MatchResult
from natsd.core.timestamp cimport TIMESTAMP_BYTES_MAX, write_timestamp
from natsd.store.codec.records cimport RecordView

cdef enum:
    NAMES_BYTES_MAX = 128       # names and line ends of all headers behind the subject

cdef bytes HEADERS_BEGIN = b"NATS/1.0\r\n"
cdef bytes SEQUENCE = b"\r\nNats-Sequence: "
cdef bytes TIME = b"\r\nNats-Time-Stamp: "
cdef bytes PENDING_HEADER = b"\r\nNats-Num-Pending: "
cdef bytes LAST = b"\r\nNats-Last-Sequence: "


cdef inline char* put(char* to, const char* text, size_t length) noexcept:
    memcpy(to, text, length)
    return to + length


cdef inline char* put_text(char* to, bytes text) noexcept:
    return put(to, <const char*> text, len(text))


cdef class DirectAnswer:
    def __init__(self, str stream not None, AccountPublisher publisher not None):
        self.publisher = publisher
        self.intro = f"Nats-Stream: {stream}\r\nNats-Subject: ".encode()

    def __dealloc__(self):
        free(self.block)

    cdef int send(
        self, MatchResult to, const char* reply, Py_ssize_t reply_len, const RecordView* view,
        int64_t pending, uint64_t last,
    ) except -1:
        cdef bytes age = b"" if self.staleness is None else self.staleness()
        cdef char* end = self.make_room(
            <size_t> view.headers_len + len(self.intro) + view.subject_len + len(age)
            + NAMES_BYTES_MAX + 3 * DECIMAL_BYTES_MAX + TIMESTAMP_BYTES_MAX
        )
        if view.headers_len > 2:        # the empty line goes to the end
            end = put(end, view.headers, view.headers_len - 2)
        else:
            end = put_text(end, HEADERS_BEGIN)
        end = put_text(end, self.intro)
        end = put(end, view.subject, view.subject_len)
        end = put_decimal(put_text(end, SEQUENCE), view.sequence)
        end = put_text(end, TIME)
        end += write_timestamp(end, view.time_ns, &self.second)
        if pending >= 0:
            end = put_decimal(put_text(end, PENDING_HEADER), <uint64_t> pending)
            end = put_decimal(put_text(end, LAST), last)
        end = put_text(put(end, b"\r\n", 2), age)
        end = put(end, b"\r\n", 2)
        self.publisher.send(
            to, reply, reply_len, NULL, 0, self.block, end - self.block, view.data, view.data_len
        )
        return 0

    cdef int send_bare(
        self, MatchResult to, const char* reply, Py_ssize_t reply_len, const RecordView* view
    ) except -1:
        self.publisher.send(to, reply, reply_len, NULL, 0, NULL, 0, view.data, view.data_len)
        return 0

    cdef char* make_room(self, size_t need) except NULL:
        cdef char* grown
        if need > self.room:
            grown = <char*> realloc(self.block, 2 * need)
            if grown == NULL:
                raise MemoryError
            self.block = grown
            self.room = 2 * need
        return self.block
