"""Parser for frames of the client protocol, which cuts them in place in one receive buffer.

    recv_into ─▶ [ parsed │ whole frames … │ a part of one ]
                          head                            tail
    next ─┬─ MSG, HMSG of a subscription with a FrameHandler ─▶ FrameHandler.take, in compiled code
          ├─ MSG, HMSG of another one ─▶ a ReceivedMessage
          └─ INFO, PING, PONG, +OK, -ERR ─▶ a Control

Promise
- One buffer is reused for all frames; it grows for a larger frame, up to `frame_bytes_max`.
- Malformed input raises ProtocolViolation and nothing else, wherever the bytes are split; nothing
  is read beyond the received bytes.
- `next` returns None if bytes are missing, and a FrameHandler if its `take` returned STOP.

This is the parser of what a server sends, for Spark and for the load generators of the bench. The
server's own parser (core/parser.pyx) reads what clients send: other operations, other limits, other
errors, in a buffer that all connections share.

Source: https://docs.nats.io/reference/reference-protocols/nats-protocol.
"""

from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove

from natsd.core.decimal cimport read_decimal

from natsd.spark.errors import ProtocolViolation

cdef extern from "Python.h":
    int PyBUF_WRITE

cdef enum:
    LINE_BYTES_MAX = 1 << 20    # INFO of a large cluster is long
    HANDLERS_MAX = 16
    DIGITS_MAX = 18

cdef str MALFORMED = "the server sent a message whose first line is malformed"


cdef class FrameHandler:
    """Handler that takes all messages of one subscription, in compiled code."""

    cdef int take(self, const MessageFrame* frame) except -1 nogil:
        return GO_ON


cdef class ReceivedMessage:
    """One message that owns its bytes."""

    cdef readonly uint64_t sid
    cdef readonly str subject
    cdef readonly str reply
    cdef readonly bytes headers
    cdef readonly bytes data

    @property
    def status(self):
        """Status code in the first line of the header block; 0: there is none."""
        cdef bytes code = self.headers[9:12]
        return int(code) if len(code) == 3 and code.isdigit() else 0

    @property
    def description(self):
        """Text behind the status code."""
        return self.headers.partition(b"\r\n")[0][12:].strip().decode("utf-8", "replace")

    def header(self, str name not None):
        """Return the first value of the header, whose case does not matter; None: it is absent."""
        cdef bytes wanted = name.lower().encode() + b":"
        for line in self.headers.split(b"\r\n")[1:]:
            if line[:len(wanted)].lower() == wanted:
                return line[len(wanted):].strip().decode("utf-8", "replace")
        return None


cdef class Control:
    """A control line: its verb in capitals, and the text behind the verb."""

    cdef readonly str verb
    cdef readonly str text


cdef class FrameParser:
    """Parser of the bytes that one connection receives; `frames` counts its messages."""

    def __init__(self, size_t room_bytes=1 << 20, size_t frame_bytes_max=80 << 20):
        self.frame_bytes_max = max(frame_bytes_max, <size_t> LINE_BYTES_MAX)
        self.handlers = {}
        self.make_room(max(room_bytes, <size_t> RECEIVE_BYTES_MIN))

    def __dealloc__(self):
        free(self.at)

    # Bytes in

    def room(self):
        """Return memory for the next received bytes, valid until the next call of any method."""
        if self.head == self.tail:
            self.head = self.tail = 0
        if self.room_bytes - self.tail < RECEIVE_BYTES_MIN:
            self.make_room(RECEIVE_BYTES_MIN)
        return PyMemoryView_FromMemory(
            self.at + self.tail, self.room_bytes - self.tail, PyBUF_WRITE
        )

    def received(self, size_t count):
        """Account for `count` bytes received into `room`. Raises ValueError if they exceed it."""
        if count > self.room_bytes - self.tail:
            raise ValueError("more bytes than there was room for")
        self.tail += count

    def feed(self, bytes data not None):
        """Append a copy of received bytes; an alternative to `room` and `received`."""
        if self.head == self.tail:
            self.head = self.tail = 0
        self.make_room(len(data))
        memcpy(self.at + self.tail, <const char*> data, len(data))
        self.tail += len(data)

    def clear(self):
        """Reset the parser for a new connection: drop unparsed bytes and detach all handlers."""
        self.head = self.tail = 0
        self.handlers.clear()
        self.attached = 0

    cdef int make_room(self, size_t wanted) except -1:
        """Ensure that `wanted` bytes fit behind `tail`."""
        cdef size_t held = self.tail - self.head
        cdef size_t room = self.room_bytes if self.room_bytes else RECEIVE_BYTES_MIN
        cdef char* grown
        if self.head and (self.room_bytes - self.tail < wanted):
            memmove(self.at, self.at + self.head, held)
            self.head = 0
            self.tail = held
        if self.room_bytes - self.tail >= wanted:
            return 0
        while room - self.tail < wanted:
            room *= 2
        grown = <char*> realloc(self.at, room)
        if grown == NULL:
            raise MemoryError
        self.at = grown
        self.room_bytes = room
        return 0

    # Frames out

    def attach(self, uint64_t sid, FrameHandler handler not None):
        """Route the messages of this subscription to the frame handler.

        Raises ValueError if 16 frame handlers are attached already.
        """
        if self.attached == HANDLERS_MAX:
            raise ValueError("too many subscriptions with a frame handler")
        self.detach(sid)
        self.handlers[sid] = handler
        self.sids[self.attached] = sid
        self.handler_pointers[self.attached] = <void*> handler
        self.attached += 1

    def detach(self, uint64_t sid):
        """Return the messages of this subscription to `next`; an unknown id is ignored."""
        cdef int at
        for at in range(self.attached):
            if self.sids[at] == sid:
                self.attached -= 1
                self.sids[at] = self.sids[self.attached]
                self.handler_pointers[at] = self.handler_pointers[self.attached]
                break
        self.handlers.pop(sid, None)

    def next(self):
        """Return a ReceivedMessage, Control, stopped FrameHandler, or None if bytes are missing.

        Raises ProtocolViolation.
        """
        cdef ReceivedMessage message
        cdef Control control
        cdef const MessageFrame* frame = &self.frame
        cdef int found
        with nogil:
            found = self.scan()
        if found == NOTHING:
            return None
        if found == STOPPED:
            return <object> self.handler_of(frame.sid)
        if found == CONTROL:
            control = Control.__new__(Control)
            line = self.at[self.head - self.line_len:self.head].decode("utf-8", "replace").strip()
            verb, _, text = line.partition(" ")
            control.verb = verb.upper()
            control.text = text.strip()
            return control
        message = ReceivedMessage.__new__(ReceivedMessage)
        message.sid = frame.sid
        message.subject = frame.subject[:frame.subject_len].decode("utf-8", "replace")
        message.reply = frame.reply[:frame.reply_len].decode("utf-8", "replace")
        message.headers = frame.headers[:frame.headers_len]
        message.data = frame.data[:frame.data_len]
        return message

    cdef int scan(self) except -1 nogil:
        """Parse up to the first frame that Python must handle; return its kind."""
        cdef const char* line
        cdef const char* end
        cdef size_t held
        cdef void* handler
        while True:
            held = self.tail - self.head
            line = self.at + self.head
            end = <const char*> memchr(line, c"\n", held) if held else NULL
            if end == NULL:
                if held > LINE_BYTES_MAX:
                    raise ProtocolViolation("the server sent a line without an end")
                return NOTHING
            self.line_len = end + 1 - line
            if not is_message(line, self.line_len):
                self.head = self.head + self.line_len
                return CONTROL
            if not self.read_message(line, self.line_len):
                return NOTHING
            self.frames = self.frames + 1
            handler = self.handler_of(self.frame.sid)
            if handler == NULL:
                return MESSAGE
            if (<FrameHandler> handler).take(&self.frame) == STOP:
                return STOPPED

    cdef int read_message(self, const char* line, size_t length) except -1 nogil:
        """Parse a message into `frame` and move `head` behind it; 0: its bytes are incomplete."""
        cdef MessageFrame* frame = &self.frame
        cdef uint64_t headers_len = 0
        cdef uint64_t total = 0
        if not self.read_memorized_line(line, length, &headers_len, &total):
            self.read_line(line, length, &headers_len, &total)
        if headers_len > total:
            raise ProtocolViolation(MALFORMED)
        if total > self.frame_bytes_max:
            raise ProtocolViolation(f"the server sent a message of {total} bytes")
        if self.tail - self.head < length + total + 2:
            return 0
        frame.headers = line + length
        frame.headers_len = headers_len
        frame.data = line + length + headers_len
        frame.data_len = total - headers_len
        if frame.data[frame.data_len] != c"\r" or frame.data[frame.data_len + 1] != c"\n":
            raise ProtocolViolation("the server sent a message that is longer than it says")
        self.head = self.head + length + total + 2
        return 1

    cdef int read_line(
        self, const char* line, size_t length, uint64_t* headers_len, uint64_t* total
    ) except -1 nogil:
        """Parse the first line of any message. Raises ProtocolViolation."""
        cdef MessageFrame* frame = &self.frame
        cdef size_t[5] starts
        cdef size_t[5] lengths
        cdef bint with_headers = line[0] == c"H" or line[0] == c"h"
        cdef const char* begin = line + 4 + with_headers
        cdef int count = split(begin, length - 4 - with_headers, starts, lengths)
        cdef int least = 4 if with_headers else 3
        self.memorized_len = 0
        if (
            count < least or count > least + 1
            or not read_decimal(begin + starts[1], lengths[1], &frame.sid)
            or not read_decimal(begin + starts[count - 1], lengths[count - 1], total)
            or with_headers
            and not read_decimal(begin + starts[count - 2], lengths[count - 2], headers_len)
        ):
            raise ProtocolViolation(MALFORMED)
        frame.subject = begin + starts[0]
        frame.subject_len = lengths[0]
        frame.reply = begin + starts[2]
        frame.reply_len = lengths[2] if count > least else 0
        if with_headers and count == 4 and 5 + starts[2] <= MEMORIZED_BYTES_MAX:
            self.memorized_len = 5 + starts[2]
            self.memorized_subject_at = 5 + starts[0]
            memcpy(self.memorized_line, line, self.memorized_len)
        return 0

    cdef bint read_memorized_line(
        self, const char* line, size_t length, uint64_t* headers_len, uint64_t* total
    ) noexcept nogil:
        """Parse an HMSG line without reply that differs from the last one only in its lengths.

        Return False if the line is different, or if none is memorized.
        """
        cdef MessageFrame* frame = &self.frame
        cdef const char* at = line + self.memorized_len
        cdef const char* end = line + length
        if (
            self.memorized_len == 0 or length < self.memorized_len
            or memcmp(line, self.memorized_line, self.memorized_len) != 0
            or not skip_number(&at, end, c" ", headers_len)
            or not skip_number(&at, end, c"\r", total)
            or end - at != 1
        ):
            return False
        frame.subject = line + self.memorized_subject_at
        frame.reply_len = 0
        return True

    cdef void* handler_of(self, uint64_t sid) noexcept nogil:
        cdef int at
        for at in range(self.attached):
            if self.sids[at] == sid:
                return self.handler_pointers[at]
        return NULL


cdef inline bint is_message(const char* line, size_t length) noexcept nogil:
    if length > 4 and (line[3] == c" " or line[3] == c"\t"):
        return memcmp(line, b"MSG", 3) == 0 or memcmp(line, b"msg", 3) == 0
    if length > 5 and (line[4] == c" " or line[4] == c"\t"):
        return memcmp(line, b"HMSG", 4) == 0 or memcmp(line, b"hmsg", 4) == 0
    return False


cdef int split(
    const char* line, size_t length, size_t* starts, size_t* lengths
) noexcept nogil:
    """Split a line at blanks; return the number of fields, or 6 for more than five."""
    cdef size_t at = 0
    cdef size_t begin
    cdef int count = 0
    while True:
        while at < length and is_blank(line[at]):
            at += 1
        if at == length:
            return count
        if count == 5:
            return 6
        begin = at
        while at < length and not is_blank(line[at]):
            at += 1
        starts[count] = begin
        lengths[count] = at - begin
        count += 1


cdef inline bint is_blank(char c) noexcept nogil:
    return <unsigned char> c <= c" " and (
        c == c" " or c == c"\t" or c == c"\r" or c == c"\n"
    )


cdef inline bint skip_number(
    const char** at, const char* end, char behind, uint64_t* to
) noexcept nogil:
    """Parse a decimal number that `behind` follows, and move `at` behind both.

    Return False, and move nothing, if there is no such number.
    """
    cdef const char* digit = at[0]
    cdef uint64_t value = 0
    while digit < end and c"0" <= digit[0] <= c"9":
        value = 10 * value + <uint64_t> (digit[0] - c"0")
        digit += 1
    if digit == end or digit[0] != behind or not 0 < digit - at[0] <= DIGITS_MAX:
        return False
    to[0] = value
    at[0] = digit + 1
    return True
