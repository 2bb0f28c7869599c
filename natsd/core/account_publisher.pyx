"""The publisher: publishes messages of the server's own parts into one account, without queueing.

    the frame without subject and sid, laid out once for all recipients as in the parser's buffer:

    line                                                  data
    +------------------+---------------------------------+---------+---------+------+
    | reply and space, | length of headers and space,    | headers | payload | CRLF |
    | or nothing       | or nothing; size of both; CRLF  |         |         |      |
    +------------------+---------------------------------+---------+---------+------+

Promise
- A small message makes no Python object: its frame is written into a buffer that the next message
  reuses. A message that recipients take by reference (BY_REFERENCE_BYTES) is copied into one bytes
  object, which they share.
- No code sends from inside a `Sink.deliver`: messages that result from a delivery are queued and
  sent at the end of the turn. A send within a send raises RuntimeError.
- The totals of the server and of the account count the messages that clients send and receive. A
  message of an publisher is counted there when, and as often as, it is delivered to clients.
- A congested recipient does not block the publisher: `is_congested` reports it, so that senders of
  many messages can slow down. `no_fast_producer_stall` does not drop messages of an publisher.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from natsd.core.decimal cimport DECIMAL_BYTES_MAX, put_decimal
from natsd.core.routing cimport ACCOUNT_KIND, MatchResult, Message, Origin, SubList

cdef enum:
    FRAME_BYTES_MIN = 512
    LINE_BYTES_MAX = 2 * DECIMAL_BYTES_MAX + 4     # without the reply: two numbers, spaces, CRLF


cdef inline char* put_line(
    char* to, const char* reply, Py_ssize_t reply_len, Py_ssize_t headers_len, Py_ssize_t size
) noexcept:
    """Write the part of a frame between sid and data at `to`; return the address behind it."""
    if reply_len:
        memcpy(to, reply, reply_len)
        to[reply_len] = c" "
        to += reply_len + 1
    if headers_len:
        to = put_decimal(to, headers_len)
        to[0] = c" "
        to += 1
    to = put_decimal(to, size)
    to[0] = c"\r"
    to[1] = c"\n"
    return to + 2


cdef inline void put_body(
    char* to, const char* headers, Py_ssize_t headers_len, const char* data, Py_ssize_t data_len
) noexcept:
    """Write headers, payload and CRLF at `to`."""
    if headers_len:
        memcpy(to, headers, headers_len)
    if data_len:
        memcpy(to + headers_len, data, data_len)
    to[headers_len + data_len] = c"\r"
    to[headers_len + data_len + 1] = c"\n"


cdef class AccountPublisher:
    """Publisher into the SubList of `account`; `counters` counts what sinks of any kind take."""

    def __init__(self, Reactor reactor not None, SubList sublist not None, account=None):
        self.reactor = reactor
        self.account = account
        self.own_origin = Origin(session=NULL, account=NULL, kind=ACCOUNT_KIND, hop=NULL)
        if account is not None:
            self.own_origin.account = <PyObject*>account
        self.origin = &self.own_origin
        self.sublist = sublist
        self.counters = TrafficStats()

    def __dealloc__(self):
        free(self.frame)

    cdef MatchResult resolve(self, const char* subject, Py_ssize_t length):
        """Return the recipients of a subject (see account_publisher.pxd)."""
        return self.sublist.lookup(subject, length)

    cdef int64_t send(
        self, MatchResult to, const char* subject, Py_ssize_t subject_len,
        const char* reply, Py_ssize_t reply_len, const char* headers, Py_ssize_t headers_len,
        const char* data, Py_ssize_t data_len,
    ) except -1:
        cdef Message message
        cdef Py_ssize_t size = headers_len + data_len
        cdef bint by_reference = size + 2 > BY_REFERENCE_BYTES
        cdef char* line = self.room(reply_len + LINE_BYTES_MAX + (0 if by_reference else size + 2))
        cdef char* body = put_line(line, reply, reply_len, headers_len, size)
        cdef bytes owner = None
        message.origin = self.origin
        message.line = line
        message.line_len = body - line
        message.owner = NULL
        if by_reference:
            owner = PyBytes_FromStringAndSize(NULL, size + 2)
            body = PyBytes_AS_STRING(owner)
            message.owner = <PyObject*>owner
        put_body(body, headers, headers_len, data, data_len)
        message.data = body
        message.header_len = headers_len
        message.data_len = size
        message.subject = subject
        message.subject_len = subject_len
        message.reply = line if reply_len else NULL
        message.reply_len = reply_len
        return self.deliver(to, &message)

    cdef int64_t deliver(self, MatchResult to, Message* message) except -1:
        """Deliver a complete message to `to`; return the number of recipients that took it."""
        cdef Reactor reactor = self.reactor
        cdef int64_t delivered
        reactor.is_sending = True
        try:
            delivered = distribute(to, message, reactor, None)
        finally:
            reactor.is_sending = False
            self.is_congested = reactor.congested is not None
            reactor.congested = None
        self.counters.out_msgs += delivered
        self.counters.out_bytes += delivered * message.data_len
        return delivered

    cdef char* room(self, Py_ssize_t need) except NULL:
        """Return the frame buffer, grown to `need` bytes; raises RuntimeError within a deliver."""
        cdef Py_ssize_t size = FRAME_BYTES_MIN
        cdef char* frame
        if self.reactor.is_sending:
            raise RuntimeError("a send within a deliver")
        if need > self.frame_bytes:
            while size < need:
                size *= 2
            frame = <char*>realloc(self.frame, size)
            if frame == NULL:
                raise MemoryError
            self.frame = frame
            self.frame_bytes = size
        return self.frame

    def publish(
        self, bytes subject not None, bytes data not None=b"", bytes reply=None,
        bytes headers not None=b"", *, Session session=None,
    ) -> int:
        """Send a message at once; return the number of recipients that took it.

        `headers` is a whole header block, or empty. With `session` its peer publishes the message,
        else the server itself. Raises RuntimeError within a deliver.
        """
        if session is not None:
            self.origin = &session.origin
        try:
            return self._publish(subject, data, reply, headers)
        finally:
            self.origin = &self.own_origin

    cdef int64_t _publish(self, bytes subject, bytes data, bytes reply, bytes headers) except -1:
        cdef const char* name = PyBytes_AS_STRING(subject)
        cdef Py_ssize_t length = PyBytes_GET_SIZE(subject)
        return self.send(
            self.resolve(name, length), name, length,
            NULL if reply is None else PyBytes_AS_STRING(reply),
            0 if reply is None else PyBytes_GET_SIZE(reply),
            PyBytes_AS_STRING(headers), PyBytes_GET_SIZE(headers),
            PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data),
        )

    def publish_later(self, bytes subject, bytes data=b"", bytes reply=None, bytes headers=b""):
        """Send a message at the end of the turn, after those that were queued before."""
        self.reactor.enqueue(self.publish, (subject, data, reply, headers))

    def has_interest(self, bytes subject not None) -> bool:
        """Return whether a message on that subject would have a recipient."""
        return self.sublist.interested(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
