"""The NATS protocol parser: bytes in, one handler call per operation out.

Promise
- Frames are parsed in place, in the buffer they were read into. Nothing is copied, and only
  handlers make Python objects. The byte after the buffer must be a readable NUL, which stops the
  scans.
- `parse` consumes whole frames and returns how many bytes they took. The caller keeps the rest and
  passes it again with the following bytes. The rest is bounded by `LARGE_FRAME_BYTES` or twice the
  longest control line. Input without a bound is consumed and kept here: `begun` remembers an
  operation whose name was read (any number of blanks may follow it, and any text may follow PING),
  and a large payload is collected in one bytes object, which recipients share.
- The handler sees the same calls, however the stream is split into reads.
- Invalid input causes one `on_violation` call, as early as nats-server's byte-wise state machine
  reports it: at the first byte that no operation has in that place, before the end of the line.
  Nothing is parsed after it.

A frame is a control line, followed by the payload for (H)PUB:

    PUB subject [reply] size CRLF  payload CRLF
    ^p          ^args              ^data   ^data + size

`fast_publish` scans the usual spelling of (H)PUB in one pass. `split` handles every other spelling
(tabs, several spaces, a bare LF, errors). Both end in `payload`. The operations between servers
come on top of these in route_protocol.pyx.

In some cases nats-server's result depends on how a line is split into reads (a CR inside a line, a
LF right after the blanks). This parser differs there: a LF ends a line, one CR before the LF
belongs to the line end, and every other CR is an ordinary byte.

Source: the NATS client protocol, as nats-server's `client.parse` (server/parser.go) reads it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcpy

from natsd.core.routing cimport Message

cdef enum:
    MAX_CONTROL_LINE_BYTES = 4096
    MAX_PAYLOAD_BYTES = 1024 * 1024
    LARGE_FRAME_BYTES = 32 * 1024   # the payload of a larger, incomplete frame is collected apart
    SIZE_DIGITS_MAX = 9

cdef enum:
    NOTHING, PUB, HPUB, SUB, UNSUB, PING, PONG, CONNECT, INFO, OK, ERR, INCOMPLETE, UNKNOWN

cdef struct Operation:
    const char* name
    Py_ssize_t size
    bint spaced                # a space or tab must follow the name

cdef Operation[ERR + 1] OPERATIONS
OPERATIONS[PUB] = Operation(b"PUB", 3, True)
OPERATIONS[HPUB] = Operation(b"HPUB", 4, True)
OPERATIONS[SUB] = Operation(b"SUB", 3, True)
OPERATIONS[UNSUB] = Operation(b"UNSUB", 5, True)
OPERATIONS[PING] = Operation(b"PING", 4, False)
OPERATIONS[PONG] = Operation(b"PONG", 4, False)
OPERATIONS[CONNECT] = Operation(b"CONNECT", 7, False)
OPERATIONS[INFO] = Operation(b"INFO", 4, False)
OPERATIONS[OK] = Operation(b"+OK", 3, False)
OPERATIONS[ERR] = Operation(b"-ERR", 4, True)

# Results of the frame functions other than the number of consumed bytes.
cdef enum:
    NEED_MORE = -2             # the frame is incomplete
    STOP = -3                  # a violation was reported


cdef inline bint is_blank(char byte) noexcept:
    return byte == c" " or byte == c"\t"


cdef inline const char* scan_token(const char* p) noexcept:
    """Return the first control character or space at or after `p`."""
    while (<unsigned char>p[0]) > 32:
        p += 1
    return p


cdef inline const char* scan_size(const char* p, Py_ssize_t* size) noexcept:
    """Read decimal digits at `p`; return the address behind them, or NULL: none or too many."""
    cdef const char* start = p
    cdef Py_ssize_t value = 0
    while c"0" <= p[0] <= c"9":
        value = value * 10 + (p[0] - c"0")
        p += 1
        if p - start > SIZE_DIGITS_MAX:
            return NULL
    size[0] = value
    return p if p != start else NULL


cdef inline Py_ssize_t parse_size(const char* p, Py_ssize_t n) noexcept:
    """Return a whole argument as a size in bytes; -1: it is not a valid size."""
    cdef Py_ssize_t value = 0
    cdef Py_ssize_t i
    if n == 0 or n > SIZE_DIGITS_MAX:
        return -1
    for i in range(n):
        if not (c"0" <= p[i] <= c"9"):
            return -1
        value = value * 10 + (p[i] - c"0")
    return value


cdef bint split(const char* p, const char* end, Args* args, int most, char also) noexcept:
    """Split a control line at blanks and at `also`; False: it has more than `most` arguments."""
    cdef const char* start
    args.count = 0
    while True:
        while p < end and (is_blank(p[0]) or p[0] == also):
            p += 1
        if p == end:
            return True
        if args.count == most:
            return False
        start = p
        while p < end and not is_blank(p[0]) and p[0] != also:
            p += 1
        args.at[args.count] = start
        args.size[args.count] = p - start
        args.count += 1


cdef bint starts(const char* p, Py_ssize_t n, const char* name, Py_ssize_t size) noexcept:
    """Return whether the first min(n, size) bytes are those of `name`, ignoring case."""
    cdef Py_ssize_t i
    cdef char byte
    for i in range(min(n, size)):
        byte = p[i]
        if c"a" <= byte <= c"z":
            byte -= 32
        if byte != name[i]:
            return False
    return True


cdef int operation(const char* p, Py_ssize_t n) noexcept:
    """Return the operation that begins at `p`, UNKNOWN, or INCOMPLETE: more bytes decide."""
    cdef int op
    for op in range(PUB, ERR + 1):
        if starts(p, n, OPERATIONS[op].name, OPERATIONS[op].size):
            if n < OPERATIONS[op].size + OPERATIONS[op].spaced:
                return INCOMPLETE
            if OPERATIONS[op].spaced and not is_blank(p[OPERATIONS[op].size]):
                return UNKNOWN
            return op
    return UNKNOWN


cdef class OpHandler(Session):
    """A session of client operations: one method each, called in the order of the bytes."""

    cdef int on_publish(self, Message* message) except -1:
        """Handle PUB or HPUB."""
        return 0

    cdef int on_subscribe(self, Args* args) except -1:
        """Handle SUB with the arguments subject, queue (if there are three) and sid."""
        return 0

    cdef int on_unsubscribe(self, Args* args) except -1:
        """Handle UNSUB with the arguments sid and, optionally, the maximum."""
        return 0

    cdef int on_ping(self) except -1:
        """Handle PING."""
        return 0

    cdef int on_pong(self) except -1:
        """Handle PONG."""
        return 0

    cdef int on_connect(self, const char* json, Py_ssize_t size) except -1:
        """Handle CONNECT."""
        return 0

    cdef bint on_connect_omitted(self) except -1:
        """Return whether the first operation, which is not CONNECT, is accepted all the same."""
        return False

    cdef int on_info(self, const char* json, Py_ssize_t size) except -1:
        """Handle INFO."""
        return 0

    cdef int on_error(self, const char* text, Py_ssize_t size) except -1:
        """Handle -ERR."""
        return 0

    cdef int on_violation(self, Violation violation, const char* at, Py_ssize_t size) except -1:
        """Handle invalid input, of which `size` bytes are at `at`; parsing has ended."""
        return 0


cdef class ClientProtocol(Protocol):
    """The parser of client operations, which it hands to `handler`."""

    def __cinit__(self):
        self.max_control_line_bytes = MAX_CONTROL_LINE_BYTES
        self.max_payload_bytes = MAX_PAYLOAD_BYTES
        self.headers = True

    def __init__(self, OpHandler handler not None):
        self.handler = handler

    def __dealloc__(self):
        drop_large(self)

    cdef Py_ssize_t parse(self, const char* buffer, Py_ssize_t size) except -1:
        """Handle the whole frames in `buffer`; return how many bytes they took.

        Parsing stops when `suspended` is set. After a violation all bytes count as taken.
        """
        cdef const char* p = buffer
        cdef const char* end = buffer + size
        cdef Py_ssize_t used
        cdef uint32_t word
        cdef bint is_usual = any_may_begin(self)  # only `slow_frame` changes the result
        assert end[0] == 0
        while p < end and not self.suspended:
            used = 0
            if end - p > 6 and is_usual:
                memcpy(&word, p, 4)
                word |= 0x20202020  # lower case
                if word == 0x20627570 and p[3] == c" ":  # "pub "
                    used = fast_publish(self, p, 4, end, False)
                elif word == 0x62757068 and p[4] == c" ":  # "hpub"
                    used = fast_publish(self, p, 5, end, True)
            if used == 0:
                used = slow_frame(self, p, end)
                is_usual = any_may_begin(self)
            if used == NEED_MORE:
                break
            if used == STOP:
                return size
            p += used
        return p - buffer

    cdef char* space(self, Py_ssize_t* room) noexcept:
        """Return the address and size of a large payload's missing rest; NULL: there is none."""
        if self.large == NULL:
            return NULL
        room[0] = self.large_message.data_len + 2 - self.large_filled
        return PyBytes_AS_STRING(<object>self.large) + self.large_filled

    cdef int filled(self, Py_ssize_t size) except -1:
        """Count `size` bytes that were put into `space`; handle the message once complete.

        Returns STOP after a violation, else 0.
        """
        cdef Message* message = &self.large_message
        self.large_filled += size
        assert self.large_filled <= message.data_len + 2
        if not may_be_terminated(message, self.large_filled):
            drop_large(self)
            return violate(self, UNKNOWN_OPERATION, b"", 0)
        if self.large_filled < message.data_len + 2:
            return 0
        _owner = <object>self.large
        try:
            self.handler.on_publish(message)
        finally:
            drop_large(self)
        return 0

    cdef void drop(self) noexcept:
        """Release the large payload that is being collected, if any, and let go of the handler."""
        drop_large(self)
        self.handler = none_handles

    cdef Py_ssize_t take(self, const char* buffer, Py_ssize_t size) except -1:
        """Complete a large payload from `buffer`, then parse the rest; return the bytes used."""
        cdef Py_ssize_t room = 0
        cdef char* space = self.space(&room)
        cdef Py_ssize_t filled = 0
        cdef Py_ssize_t used
        if space != NULL:
            filled = min(room, size)
            memcpy(space, buffer, filled)
            if self.filled(filled) == STOP:
                return size
        if filled == size or self.suspended:
            return filled
        used = self.parse(buffer + filled, size - filled)
        return filled + used


cdef void drop_large(ClientProtocol h) noexcept:
    cdef PyObject* large = h.large
    h.large = NULL
    h.large_filled = 0
    free(h.large_line)
    h.large_line = NULL
    Py_XDECREF(large)


cdef inline bint any_may_begin(ClientProtocol h) noexcept:
    """Return whether the next byte begins a frame and every operation is allowed."""
    return h.begun == NOTHING and not h.awaiting_connect


cdef int violate(ClientProtocol h, Violation violation, const char* at, Py_ssize_t size) except -1:
    """Report a violation in the `size` bytes at `at`, and suspend parsing; return STOP."""
    h.suspended = True
    h.handler.on_violation(violation, at, size)
    return STOP


cdef inline bint may_be_terminated(Message* message, Py_ssize_t here) noexcept:
    """Return whether CRLF may follow the payload, judged by its first `here` received bytes."""
    cdef Py_ssize_t size = message.data_len
    return (here <= size or message.data[size] == c"\r") and (
        here <= size + 1 or message.data[size + 1] == c"\n"
    )


cdef inline Py_ssize_t fast_publish(
    ClientProtocol h, const char* p, Py_ssize_t name_size, const char* end, bint has_headers
) except -1:
    """Parse (H)PUB in its usual spelling.

    Returns the bytes used, NEED_MORE, STOP, or 0: `slow_frame` must parse it.
    """
    cdef Message message
    cdef const char* start = p + name_size
    cdef const char* q = scan_token(start)
    cdef const char* after
    message.subject = start
    message.subject_len = q - start
    if q[0] != c" " or q == start or (has_headers and not h.headers):
        return 0
    q += 1
    message.line = q
    message.reply = NULL
    message.reply_len = 0
    message.header_len = 0
    after = scan_size(q, &message.data_len)
    if has_headers:
        if after == NULL or after[0] != c" ":
            message.reply = q
        else:
            message.header_len = message.data_len
            after = scan_size(after + 1, &message.data_len)
            if after == NULL or after[0] != c"\r":
                return 0  # perhaps three numbers, of which the first is then a reply subject
    elif after == NULL or after[0] != c"\r":
        message.reply = q
    if message.reply != NULL:
        q = scan_token(q)
        message.reply_len = q - message.reply
        if q[0] != c" " or message.reply_len == 0:
            return 0
        after = scan_size(q + 1, &message.data_len)
        if has_headers:
            if after == NULL or after[0] != c" ":
                return 0
            message.header_len = message.data_len
            after = scan_size(after + 1, &message.data_len)
    if after == NULL or after[0] != c"\r" or after[1] != c"\n":
        return 0
    if after - start > h.max_control_line_bytes or message.header_len > message.data_len:
        return 0
    if has_headers and message.header_len == 0:
        return 0  # recipients get it as MSG, with a line that `slow_publish` makes
    message.data = after + 2
    message.line_len = message.data - message.line
    return payload(h, &message, p, end)


cdef inline Py_ssize_t payload(
    ClientProtocol h, Message* message, const char* p, const char* end
) except -1:
    """Handle a publish whose line, from `p` on, is parsed, once the payload is complete.

    Returns the bytes used, NEED_MORE or STOP. The start of a large payload is collected apart.
    """
    cdef Py_ssize_t frame = message.data - p + message.data_len + 2
    message.owner = NULL
    if message.data_len > h.max_payload_bytes and h.max_payload_bytes >= 0:
        # The received part of the headers is passed as well: they may request a trace.
        return violate(h, MAX_PAYLOAD, p, min(message.data + message.header_len, end) - p)
    if not may_be_terminated(message, end - message.data):
        return violate(h, UNKNOWN_OPERATION, p, end - p)
    if end - p >= frame:
        h.handler.on_publish(message)
        return frame
    if frame <= LARGE_FRAME_BYTES:
        return NEED_MORE
    begin_large(h, message, end)
    return end - p


cdef int begin_large(ClientProtocol h, Message* message, const char* end) except -1:
    """Begin to collect an incomplete large payload: copy its line and its received part."""
    cdef Py_ssize_t here = end - message.data
    assert h.large == NULL and 0 <= here < message.data_len + 2
    large = PyBytes_FromStringAndSize(NULL, message.data_len + 2)
    cdef char* line = <char*>malloc(message.subject_len + 1 + message.line_len)
    if line == NULL:
        raise MemoryError
    memcpy(line, message.subject, message.subject_len)
    line[message.subject_len] = c" "
    memcpy(line + message.subject_len + 1, message.line, message.line_len)
    memcpy(PyBytes_AS_STRING(large), message.data, here)
    h.large_message = message[0]
    h.large_message.subject = line
    h.large_message.line = line + message.subject_len + 1
    if message.reply != NULL:
        h.large_message.reply = h.large_message.line  # the line begins with the reply
    h.large_message.data = PyBytes_AS_STRING(large)
    h.large_message.owner = <PyObject*>large
    h.large_line = line
    h.large_filled = here
    Py_INCREF(large)
    h.large = <PyObject*>large
    return 0


cdef Py_ssize_t slow_frame(ClientProtocol h, const char* p, const char* end) except -1:
    """Parse one frame in any spelling; return the bytes used, NEED_MORE or STOP."""
    cdef int op = h.begun
    cdef const char* arg = p
    cdef const char* line_end
    cdef const char* arg_end
    cdef Py_ssize_t used
    if op == NOTHING:
        if (
            h.awaiting_connect and p[0] != c"C" and p[0] != c"c"
            and not h.handler.on_connect_omitted()
        ):
            return violate(h, CONNECT_REQUIRED, p, end - p)
        op = operation(p, end - p)
        if op == UNKNOWN:
            return violate(h, UNKNOWN_OPERATION, p, end - p)
        if op == INCOMPLETE:
            return NEED_MORE
        arg += OPERATIONS[op].size
    while arg < end and is_blank(arg[0]):
        arg += 1
    line_end = <const char*>memchr(arg, c"\n", end - arg)
    arg_end = line_end if line_end != NULL else end
    if op == PING or op == PONG or op == OK:
        arg = arg_end  # text of any length after these operations is ignored
    elif arg_end > arg and arg_end[-1] == c"\r":
        arg_end -= 1
    if arg_end - arg > h.max_control_line_bytes:
        return violate(h, CONTROL_LINE, arg, arg_end - arg)
    if line_end == NULL:
        if arg < end:
            return NEED_MORE
        h.begun = op
        return end - p
    if op == PUB or op == HPUB:
        used = slow_publish(h, p, arg, arg_end, line_end, end, op == HPUB)
        if used == NEED_MORE:
            return NEED_MORE
    else:
        used = line_operation(h, op, arg, arg_end)
        if used != STOP:
            used = line_end + 1 - p
    h.begun = NOTHING
    return used


cdef int line_operation(ClientProtocol h, int op, const char* arg, const char* arg_end) except -1:
    """Handle an operation that consists of one line; return STOP after a violation, else 0."""
    cdef Args args
    if op == PING:
        h.handler.on_ping()
    elif op == PONG:
        h.handler.on_pong()
    elif op == CONNECT:
        h.handler.on_connect(arg, arg_end - arg)
    elif op == INFO:
        h.handler.on_info(arg, arg_end - arg)
    elif op == ERR:
        h.handler.on_error(arg, arg_end - arg)
    elif op == SUB:
        if not split(arg, arg_end, &args, 3, c"\r") or args.count < 2:
            return violate(h, BAD_ARGUMENTS, arg, arg_end - arg)
        h.handler.on_subscribe(&args)
    elif op == UNSUB:
        if not split(arg, arg_end, &args, 2, c"\r") or args.count < 1:
            return violate(h, BAD_ARGUMENTS, arg, arg_end - arg)
        h.handler.on_unsubscribe(&args)
    return 0


cdef Py_ssize_t slow_publish(
    ClientProtocol h, const char* p, const char* arg, const char* arg_end, const char* line_end,
    const char* end, bint has_headers,
) except -1:
    """Parse (H)PUB in any spelling; return the bytes used, NEED_MORE or STOP."""
    cdef Message message
    cdef Args args
    cdef int sizes = 2 if has_headers else 1
    if has_headers and not h.headers:
        return violate(h, HEADERS_NOT_SUPPORTED, arg, arg_end - arg)
    if not split(arg, arg_end, &args, 2 + sizes, c" ") or args.count < 1 + sizes:
        return violate(h, BAD_ARGUMENTS, arg, arg_end - arg)
    message.subject = args.at[0]
    message.subject_len = args.size[0]
    message.reply = NULL
    message.reply_len = 0
    if args.count == 2 + sizes:
        message.reply = args.at[1]
        message.reply_len = args.size[1]
    message.header_len = 0
    if has_headers:
        message.header_len = parse_size(args.at[args.count - 2], args.size[args.count - 2])
    message.data_len = parse_size(args.at[args.count - 1], args.size[args.count - 1])
    if message.data_len < 0 or message.header_len < 0 or message.header_len > message.data_len:
        return violate(h, BAD_ARGUMENTS, arg, arg_end - arg)
    message.data = line_end + 1
    cdef list words = [args.at[i][:args.size[i]] for i in range(1, args.count)]
    if has_headers and message.header_len == 0:
        del words[-2]
    cdef bytes line = b" ".join(words) + b"\r\n"
    message.line = PyBytes_AS_STRING(line)
    message.line_len = PyBytes_GET_SIZE(line)
    return payload(h, &message, p, end)


none_handles = OpHandler.__new__(OpHandler)


cdef class OpRecorder(OpHandler):
    """Parser that records operations as tuples, for tests, fuzzing and tools.

        ("PUB", subject, reply, payload, line)    line: the text after subject and sid in a MSG
        ("HPUB", subject, reply, header block, payload, line)
        ("SUB", subject, queue, sid)    ("UNSUB", sid)    ("UNSUB", sid, max)
        ("PING",)    ("PONG",)    ("CONNECT", json)    ("INFO", json)    ("-ERR", text)
        ("violation", its name)

    An absent element is None. With `step_by_step`, parsing is suspended after each operation and
    then continues, as it does for a publisher that must wait.
    """

    cdef ClientProtocol protocol
    cdef list operations
    cdef bytes tail                       # bytes that were fed but not parsed yet
    cdef bint step_by_step
    cdef readonly bint violated           # a violation was reported: nothing more is parsed

    def __init__(
        self, *, int32_t max_control_line=MAX_CONTROL_LINE_BYTES,
        int64_t max_payload=MAX_PAYLOAD_BYTES, bint headers=True, bint awaiting_connect=False,
        bint step_by_step=False,
    ):
        self.protocol = ClientProtocol(self)
        self.protocol.max_control_line_bytes = max_control_line
        self.protocol.max_payload_bytes = max_payload
        self.protocol.headers = headers
        self.protocol.awaiting_connect = awaiting_connect
        self.step_by_step = step_by_step
        self.operations = []
        self.tail = b""

    def feed(self, bytes data) -> list:
        """Parse the kept bytes, then `data`; return the operations that are now complete."""
        cdef bytes buffer = self.tail + data
        cdef const char* p = PyBytes_AS_STRING(buffer)
        cdef Py_ssize_t left = PyBytes_GET_SIZE(buffer)
        cdef Py_ssize_t used
        cdef list operations
        while left and not self.violated:
            self.protocol.suspended = False
            used = self.protocol.take(p, left)
            p += used
            left -= used
            if not self.protocol.suspended:
                break
        self.tail = b"" if self.violated else p[:left]
        operations, self.operations = self.operations, []
        return operations

    @property
    def tail_bytes(self) -> int:
        """Bytes that are kept and parsed again with the following ones."""
        return len(self.tail)

    @property
    def large_bytes(self) -> int:
        """Received bytes of a large payload that is still incomplete."""
        return self.protocol.large_filled

    cdef int record(self, tuple operation) except -1:
        """Append an operation; with `step_by_step`, suspend parsing."""
        self.operations.append(operation)
        if self.step_by_step:
            self.protocol.suspended = True
        return 0

    cdef int on_publish(self, Message* message) except -1:
        cdef bytes subject = message.subject[:message.subject_len]
        cdef bytes reply = None if message.reply == NULL else message.reply[:message.reply_len]
        cdef bytes headers = message.data[:message.header_len]
        cdef bytes payload = message.data[message.header_len:message.data_len]
        cdef bytes line = message.line[:message.line_len]
        assert message.data[message.data_len:message.data_len + 2] == b"\r\n"
        assert (message.owner == NULL) == (self.protocol.large == NULL)
        if message.header_len:
            return self.record(("HPUB", subject, reply, headers, payload, line))
        return self.record(("PUB", subject, reply, payload, line))

    cdef int on_subscribe(self, Args* args) except -1:
        cdef list words = [args.at[i][:args.size[i]] for i in range(args.count)]
        return self.record(("SUB", words[0], words[1] if args.count == 3 else None, words[-1]))

    cdef int on_unsubscribe(self, Args* args) except -1:
        return self.record(("UNSUB", *[args.at[i][:args.size[i]] for i in range(args.count)]))

    cdef int on_ping(self) except -1:
        return self.record(("PING",))

    cdef int on_pong(self) except -1:
        return self.record(("PONG",))

    cdef int on_connect(self, const char* json, Py_ssize_t size) except -1:
        self.protocol.awaiting_connect = False
        return self.record(("CONNECT", json[:size]))

    cdef int on_info(self, const char* json, Py_ssize_t size) except -1:
        return self.record(("INFO", json[:size]))

    cdef int on_error(self, const char* text, Py_ssize_t size) except -1:
        return self.record(("-ERR", text[:size]))

    cdef int on_violation(self, Violation violation, const char* at, Py_ssize_t size) except -1:
        self.violated = True
        return self.record(("violation", VIOLATION_NAMES[violation]))


cdef tuple VIOLATION_NAMES = (
    None, "UNKNOWN_OPERATION", "CONTROL_LINE", "MAX_PAYLOAD", "BAD_ARGUMENTS",
    "HEADERS_NOT_SUPPORTED", "CONNECT_REQUIRED",
)
