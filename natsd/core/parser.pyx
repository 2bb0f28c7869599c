"""The NATS protocol parser: bytes in, one handler call per operation out.

Promise
- Frames are parsed in place, in the buffer they were read into; nothing is copied and no Python object is made
  but what a handler makes. The byte behind the buffer must be readable and a control character (a NUL will do): it
  stops the scans.
- `parse` consumes whole frames only and says how many bytes those were. The caller keeps the rest and presents it
  again with what follows, so that the parser is resumable at every byte without keeping a state of its own. What it does
  keep is a payload too large for that (`LARGE_FRAME_BYTES`): it goes into one bytes object that recipients share.
- Garbage is answered by one `on_violation` call, as early as nats-server's byte-wise state machine does: at the first
  byte that no operation has in that place, with no wait for the end of the line.

A frame is a control line, and for (H)PUB its payload:

    PUB subject [reply] size CRLF  payload CRLF
    ^p          ^args              ^data   ^data + size

The usual spelling of (H)PUB is scanned in one pass (`fast_publish`); every other spelling (tabs, several spaces, a bare
LF, sizes with leading zeros, errors) takes the general way through `split`. Both end in `payload`. Operations between
servers (RS+, RMSG, LS+, LMSG, ...) will join in `slow_frame`, behind what clients send.

Source: the NATS client protocol, nats-server 2.14 reference 3.1.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcpy

from natsd.core.subscription cimport Message, Sink

cdef enum:
    MAX_CONTROL_LINE_BYTES = 4096
    MAX_PAYLOAD_BYTES = 1024 * 1024
    LARGE_FRAME_BYTES = 32 * 1024
    SIZE_DIGITS_MAX = 9
    NAME_BYTES_MAX = 8

cdef struct Operation:
    const char* name
    Py_ssize_t size
    bint spaced                # a space or tab must follow the name

cdef Operation[8] OPERATIONS
OPERATIONS[0] = Operation(b"PUB", 3, True)
OPERATIONS[1] = Operation(b"HPUB", 4, True)
OPERATIONS[2] = Operation(b"SUB", 3, True)
OPERATIONS[3] = Operation(b"UNSUB", 5, True)
OPERATIONS[4] = Operation(b"PING", 4, False)
OPERATIONS[5] = Operation(b"PONG", 4, False)
OPERATIONS[6] = Operation(b"CONNECT", 7, False)
OPERATIONS[7] = Operation(b"INFO", 4, False)

cdef enum:
    PUB, HPUB, SUB, UNSUB, PING, PONG, CONNECT, INFO, OK, ERR, UNKNOWN, INCOMPLETE

# What `frame` found besides "consumed so many bytes".
cdef enum:
    NEED_MORE = -2
    STOP = -3


cdef inline bint is_blank(char byte) noexcept:
    return byte == c" " or byte == c"\t"


cdef inline const char* scan_token(const char* p) noexcept:
    """The first control character or space at or behind `p`."""
    while (<unsigned char>p[0]) > 32:
        p += 1
    return p


cdef inline const char* scan_size(const char* p, Py_ssize_t* size) noexcept:
    """Read decimal digits; NULL where there are none or too many."""
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
    """A whole argument as a size in bytes; -1 if it is none."""
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
    """Split a control line at blanks and at `also`; False where it has more than `most` arguments."""
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
    """Whether the first min(n, size) bytes are `name`'s, in any case."""
    cdef Py_ssize_t i
    cdef char byte
    for i in range(min(n, size)):
        byte = p[i]
        if c"a" <= byte <= c"z":
            byte -= 32
        if byte != name[i]:
            return False
    return True


cdef int operation(const char* p, Py_ssize_t n, Py_ssize_t* name_size) noexcept:
    """Which operation begins at `p`: one of the enum's, INCOMPLETE while it may still become one."""
    cdef int i
    for i in range(8):
        if starts(p, n, OPERATIONS[i].name, OPERATIONS[i].size):
            name_size[0] = OPERATIONS[i].size
            if n < OPERATIONS[i].size + OPERATIONS[i].spaced:
                return INCOMPLETE
            if OPERATIONS[i].spaced and not is_blank(p[OPERATIONS[i].size]):
                return UNKNOWN
            return i
    if starts(p, n, b"+OK", 3):
        name_size[0] = 3
        return OK if n >= 3 else INCOMPLETE
    if starts(p, n, b"-ERR", 4):
        name_size[0] = 4
        if n < 5:
            return INCOMPLETE
        return ERR if is_blank(p[4]) else UNKNOWN
    return UNKNOWN


cdef class OpHandler(Sink):
    """Who a parser feeds: one method per operation, called in the order of the bytes."""

    def __cinit__(self):
        self.max_control_line_bytes = MAX_CONTROL_LINE_BYTES
        self.max_payload_bytes = MAX_PAYLOAD_BYTES
        self.headers = True

    def __dealloc__(self):
        self.large_drop()

    cdef int on_publish(self, Message* message) except -1:
        return 0

    cdef int on_subscribe(self, Args* args) except -1:
        return 0

    cdef int on_unsubscribe(self, Args* args) except -1:
        return 0

    cdef int on_ping(self) except -1:
        return 0

    cdef int on_pong(self) except -1:
        return 0

    cdef int on_connect(self, const char* json, Py_ssize_t size) except -1:
        return 0

    cdef int on_info(self, const char* json, Py_ssize_t size) except -1:
        return 0

    cdef int on_error(self, const char* text, Py_ssize_t size) except -1:
        return 0

    cdef int on_violation(self, Violation violation, const char* at, Py_ssize_t size) except -1:
        return 0

    cdef Py_ssize_t parse(self, const char* buffer, Py_ssize_t size) except -1:
        """Handle the whole frames in `buffer`; return how many bytes they took.

        After a violation, and while `suspended`, no further frame is looked at; a violation takes everything.
        """
        cdef const char* p = buffer
        cdef const char* end = buffer + size
        cdef Py_ssize_t used
        cdef uint32_t word
        if self.idle_operation:
            p = self.end_idle_line(p, end)
        while p < end and not self.suspended:
            used = 0
            if end - p > 6 and not self.awaiting_connect:
                memcpy(&word, p, 4)
                word |= 0x20202020  # lower case
                if word == 0x20627570 and p[3] == c" ":  # "pub "
                    used = fast_publish(self, p, 4, end, False)
                elif word == 0x62757068 and p[4] == c" ":  # "hpub"
                    used = fast_publish(self, p, 5, end, True)
            if used == 0:
                used = slow_frame(self, p, end)
            if used == NEED_MORE:
                break
            if used == STOP:
                return size
            if used < 0:
                return -1
            p += used
        return p - buffer

    cdef const char* end_idle_line(self, const char* p, const char* end) except NULL:
        """Skip the rest of a PING, PONG or +OK line, which means nothing, however long it is."""
        cdef const char* line_end = <const char*>memchr(p, c"\n", end - p)
        cdef int op = self.idle_operation - 1
        if line_end == NULL:
            return end
        self.idle_operation = 0
        line_operation(self, op, p, p)
        return line_end + 1

    cdef char* large_space(self, Py_ssize_t* size) noexcept:
        """Where the rest of the large payload belongs; NULL when none is being collected."""
        if self.large == NULL:
            return NULL
        size[0] = self.large_message.data_len + 2 - self.large_filled
        return PyBytes_AS_STRING(<object>self.large) + self.large_filled

    cdef int large_received(self, Py_ssize_t size) except -1:
        """`size` bytes were put into `large_space`; hand the message on when it is whole."""
        cdef Message* message = &self.large_message
        self.large_filled += size
        if self.large_filled < message.data_len + 2:
            return 0
        if not is_terminated(message.data, message.data_len):
            self.large_drop()
            self.on_violation(UNKNOWN_OPERATION, b"", 0)
            return 0
        owner = <object>self.large
        try:
            self.on_publish(message)
        finally:
            self.large_drop()
        return 0

    cdef void large_drop(self) noexcept:
        cdef PyObject* large = self.large
        self.large = NULL
        self.large_filled = 0
        free(self.large_line)
        self.large_line = NULL
        Py_XDECREF(large)

    cdef Py_ssize_t take(self, const char* buffer, Py_ssize_t size) except -1:
        """Fill a large payload under way from `buffer`, then parse; return the bytes used."""
        cdef Py_ssize_t room = 0
        cdef char* space = self.large_space(&room)
        cdef Py_ssize_t filled = 0
        cdef Py_ssize_t used
        if space != NULL:
            filled = min(room, size)
            memcpy(space, buffer, filled)
            self.large_received(filled)
        if filled == size or self.suspended:
            return filled
        used = self.parse(buffer + filled, size - filled)
        return filled + used


cdef inline bint is_terminated(const char* data, Py_ssize_t size) noexcept:
    return data[size] == c"\r" and data[size + 1] == c"\n"


cdef inline Py_ssize_t fast_publish(
    OpHandler h, const char* p, Py_ssize_t name_size, const char* end, bint has_headers
) except -1:
    """(H)PUB in its usual spelling: bytes used, 0 to take the general way, NEED_MORE or STOP."""
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
                return 0  # three numbers, perhaps: the first is then a reply
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
        return 0  # goes out as MSG, with a line of its own
    message.data = after + 2
    message.line_len = message.data - message.line
    return payload(h, &message, p, end)


cdef inline Py_ssize_t payload(
    OpHandler h, Message* message, const char* p, const char* end
) except -1:
    """The control line of a publish that began at `p` is read: hand the message on once it is whole."""
    cdef Py_ssize_t frame = message.data - p + message.data_len + 2
    message.owner = NULL
    if message.data_len > h.max_payload_bytes and h.max_payload_bytes >= 0:
        h.on_violation(MAX_PAYLOAD, p, message.data - p)
        return STOP
    if end - p < frame:
        if end - message.data > message.data_len and message.data[message.data_len] != c"\r":
            h.on_violation(UNKNOWN_OPERATION, p, end - p)
            return STOP
        if frame <= LARGE_FRAME_BYTES:
            return NEED_MORE
        begin_large(h, message, end)
        return end - p
    if not is_terminated(message.data, message.data_len):
        h.on_violation(UNKNOWN_OPERATION, p, frame)
        return STOP
    h.on_publish(message)
    return frame


cdef int begin_large(OpHandler h, Message* message, const char* end) except -1:
    """Move a payload that is not all there yet to an object of its own."""
    cdef Py_ssize_t here = end - message.data
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
        h.large_message.reply = h.large_message.line  # the line begins with it
    h.large_message.data = PyBytes_AS_STRING(large)
    h.large_message.owner = <PyObject*>large
    h.large_line = line
    h.large_filled = here
    Py_INCREF(large)
    h.large = <PyObject*>large
    return 0


cdef Py_ssize_t slow_frame(OpHandler h, const char* p, const char* end) except -1:
    """One frame in any spelling: bytes used, NEED_MORE or STOP."""
    cdef Py_ssize_t name_size = 0
    cdef int op = operation(p, end - p, &name_size)
    cdef const char* line_end
    cdef const char* arg
    cdef const char* arg_end
    if h.awaiting_connect and p[0] != c"C" and p[0] != c"c":
        h.on_violation(CONNECT_REQUIRED, p, end - p)
        return STOP
    if op == UNKNOWN:
        h.on_violation(UNKNOWN_OPERATION, p, end - p)
        return STOP
    if op == INCOMPLETE:
        return NEED_MORE
    arg = p + name_size
    while arg < end and is_blank(arg[0]):
        arg += 1
    line_end = <const char*>memchr(arg, c"\n", end - arg)
    arg_end = line_end if line_end != NULL else end
    if arg_end > arg and arg_end[-1] == c"\r":
        arg_end -= 1
    if op in (PING, PONG, OK):
        if line_end == NULL:
            h.idle_operation = op + 1
            return end - p
        arg = arg_end
    # Blanks in front of the arguments do not count, but they are no way to fill a buffer either.
    if arg_end - arg > h.max_control_line_bytes or arg - p > h.max_control_line_bytes + NAME_BYTES_MAX:
        h.on_violation(CONTROL_LINE, arg, arg_end - arg)
        return STOP
    if line_end == NULL:
        return NEED_MORE
    if op == PUB or op == HPUB:
        return slow_publish(h, p, arg, arg_end, line_end, end, op == HPUB)
    if line_operation(h, op, arg, arg_end) == STOP:
        return STOP
    return line_end + 1 - p


cdef int line_operation(OpHandler h, int op, const char* arg, const char* arg_end) except -1:
    """An operation that is one line; STOP after a violation."""
    cdef Args args
    if op == PING:
        h.on_ping()
    elif op == PONG:
        h.on_pong()
    elif op == CONNECT:
        h.on_connect(arg, arg_end - arg)
    elif op == INFO:
        h.on_info(arg, arg_end - arg)
    elif op == ERR:
        h.on_error(arg, arg_end - arg)
    elif op == SUB:
        if not split(arg, arg_end, &args, 3, c"\r") or args.count < 2:
            h.on_violation(BAD_ARGUMENTS, arg, arg_end - arg)
            return STOP
        h.on_subscribe(&args)
    elif op == UNSUB:
        if not split(arg, arg_end, &args, 2, c"\r") or args.count < 1:
            h.on_violation(BAD_ARGUMENTS, arg, arg_end - arg)
            return STOP
        h.on_unsubscribe(&args)
    return 0


cdef Py_ssize_t slow_publish(
    OpHandler h, const char* p, const char* arg, const char* arg_end, const char* line_end,
    const char* end, bint has_headers,
) except -1:
    """(H)PUB in any spelling."""
    cdef Message message
    cdef Args args
    cdef int sizes = 2 if has_headers else 1
    if has_headers and not h.headers:
        h.on_violation(HEADERS_NOT_SUPPORTED, arg, arg_end - arg)
        return STOP
    if not split(arg, arg_end, &args, 2 + sizes, c" ") or args.count < 1 + sizes:
        h.on_violation(BAD_ARGUMENTS, arg, arg_end - arg)
        return STOP
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
        h.on_violation(BAD_ARGUMENTS, arg, arg_end - arg)
        return STOP
    message.data = line_end + 1
    cdef list words = [args.at[i][:args.size[i]] for i in range(1, args.count)]
    if has_headers and message.header_len == 0:
        del words[-2]
    cdef bytes line = b" ".join(words) + b"\r\n"
    message.line = PyBytes_AS_STRING(line)
    message.line_len = PyBytes_GET_SIZE(line)
    return payload(h, &message, p, end)
