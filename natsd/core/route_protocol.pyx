"""The protocol between the servers of a cluster: bytes in, one call of a session per operation out.

    RS+ [account] subject [queue weight]       RS- [account] subject [queue]
    LS+ origin [account] subject [queue weight]        LS- origin [account] subject [queue]
    RMSG [account] subject [reply] size                payload
    RMSG [account] subject | queue … size              payload
    RMSG [account] subject + reply queue … size        payload
    HMSG, with the size of the headers before the size
    LMSG origin, then as HMSG
    INFO, CONNECT, PING, PONG, +OK, -ERR               as between clients and servers

The account is missing on a connection that is dedicated to one account. Before the session opens
the protocol, only the operations of the last row are allowed.

Promise
- A message of the usual spelling is parsed in place: its line is, from the subject on, that of a
  client's PUB, and `fast_publish` parses it. A frame that names queue groups gets a line of its
  own.
- No message makes a Python object, unless its payload is large.
- Large payloads, rests of reads and violations are treated as the parser of clients does
  (parser.pyx).

Source: nats-server's `parse`, `processRoutedMsgArgs` and `processRemoteSub` (server/parser.go,
server/route.go).
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy

from natsd.core.decimal cimport DECIMAL_BYTES_MAX, put_decimal
from natsd.core.routing cimport Message

cdef enum:
    ROUTED_LINE_BYTES_MAX = 64 * 1024
    ROUTED_PAYLOAD_MAX = 64 * 1024 * 1024   # nats-server's upper limit of `max_payload`, and
    ROUTED_HEADERS_MAX = 1024 * 1024        # what a server adds in headers


cdef class RouteProtocol(ClientProtocol):
    """The parser of a route's operations, which it hands to `session`."""

    def __init__(self, RouteSession session not None):
        ClientProtocol.__init__(self, session)
        self.session = session
        self.max_control_line_bytes = ROUTED_LINE_BYTES_MAX
        self.max_payload_bytes = ROUTED_PAYLOAD_MAX + ROUTED_HEADERS_MAX

    cdef Py_ssize_t parse(self, const char* buffer, Py_ssize_t size) except -1:
        cdef const char* p = buffer
        cdef const char* end = buffer + size
        cdef Py_ssize_t used
        assert end[0] == 0
        while p < end and not self.suspended:
            used = route_frame(self, p, end)
            if used == NEED_MORE:
                break
            if used == STOP:
                return size
            p += used
        return p - buffer

    def __dealloc__(self):
        free(self.line)

    cdef void drop(self) noexcept:
        ClientProtocol.drop(self)
        self.session = no_route
        self.link = None


cdef Py_ssize_t route_frame(RouteProtocol h, const char* p, const char* end) except -1:
    """Parse one frame; return the bytes used, NEED_MORE or STOP."""
    cdef char first = p[0] & ~0x20     # in upper case
    cdef int op
    cdef Py_ssize_t used
    if h.begun == NOTHING and h.is_open:
        if first == c"R" or first == c"H":
            used = fast_message(h, p, end, first)
            if used:
                return used
        if end - p < 5 and (first == c"R" or first == c"H" or first == c"L"):
            return NEED_MORE
        if first == c"R" and (p[1] & ~0x20) == c"S" and is_blank(p[3]):
            return interest_frame(h, p, end, False)
        if first == c"L" and (p[1] & ~0x20) == c"S" and is_blank(p[3]):
            return interest_frame(h, p, end, True)
        if (first == c"R" or first == c"H" or first == c"L") and starts(p + 1, 3, b"MSG", 3):
            if is_blank(p[4]):
                return message_frame(h, p, end, first)
    if h.begun == NOTHING:
        op = operation(p, end - p)
        if op == PUB or op == HPUB or op == SUB or op == UNSUB:
            return violate(h, UNKNOWN_OPERATION, p, end - p)
    return slow_frame(h, p, end)


cdef const char* line_end_of(RouteProtocol h, const char* p, const char* end) noexcept:
    """Return the address of the LF that ends the control line at `p`; NULL: it is not here yet."""
    return <const char*> memchr(p, c"\n", end - p)


cdef Py_ssize_t incomplete(RouteProtocol h, const char* p, const char* end) except -1:
    """Return NEED_MORE for a control line without its end, or STOP: it is too long."""
    if end - p > h.max_control_line_bytes:
        return violate(h, CONTROL_LINE, p, end - p)
    return NEED_MORE


cdef inline const char* next_word(const char** p, const char* end, Py_ssize_t* size) noexcept:
    """Return the next word of a line and move `p` behind it; NULL: there is none."""
    cdef const char* start
    while p[0] < end and is_blank(p[0][0]):
        p[0] += 1
    start = p[0]
    while p[0] < end and not is_blank(p[0][0]):
        p[0] += 1
    size[0] = p[0] - start
    return start if size[0] else NULL


# Interest

cdef Py_ssize_t interest_frame(
    RouteProtocol h, const char* p, const char* end, bint has_origin
) except -1:
    """Parse RS+, RS-, LS+ or LS-; return the bytes used, NEED_MORE or STOP."""
    cdef const char* line_end = line_end_of(h, p, end)
    cdef const char* at = p + 4
    cdef const char* stop
    cdef const char* word
    cdef Py_ssize_t size, origin_size = 0
    cdef const char* origin = NULL
    cdef RouteLink link
    cdef bytes subject
    cdef bytes queue = None
    cdef int64_t weight = 1
    if line_end == NULL:
        return incomplete(h, p, end)
    stop = line_end - 1 if line_end[-1] == c"\r" else line_end
    if p[2] != c"+" and p[2] != c"-":
        return violate(h, UNKNOWN_OPERATION, p, end - p)
    if h.session.trace:
        h.session.trace_operation("<<-", <bytes> p[:stop - p])
    if has_origin:
        # A peer names the leaf cluster only if it knows that this server wants it (`lnocu`).
        origin = next_word(&at, stop, &origin_size)
    link = h.session.dedicated
    if link is None:
        word = next_word(&at, stop, &size)
        if word == NULL:
            return violate(h, BAD_ARGUMENTS, p, stop - p)
        link = h.session.link_named(word, size)
    word = next_word(&at, stop, &size)
    if word == NULL:
        return violate(h, BAD_ARGUMENTS, p, stop - p)
    subject = word[:size]
    word = next_word(&at, stop, &size)
    if word != NULL:
        queue = word[:size]
        word = next_word(&at, stop, &size)
        if p[2] == c"+":
            weight = -1 if word == NULL else parse_size(word, size)
            if weight < 0:
                return violate(h, BAD_ARGUMENTS, p, stop - p)
    if link is not None:
        if p[2] == c"+":
            link.subscribe(origin[:origin_size], subject, queue, weight)
        else:
            link.unsubscribe(origin[:origin_size], subject, queue)
    return line_end + 1 - p


# Messages

cdef inline Py_ssize_t fast_message(
    RouteProtocol h, const char* p, const char* end, char first
) except -1:
    """Parse RMSG or HMSG without queue groups, of the account that the peer mentioned last.

    Returns the bytes used, NEED_MORE, STOP, or 0: `message_frame` must parse it.
    """
    cdef RouteSession session = h.session
    cdef Py_ssize_t name_len = session.last_name_len
    if (
        session.last_link is None or session.trace or end - p < name_len + 8
        or memcmp(p + 1, b"MSG ", 4) != 0 or memcmp(p + 5, session.last_name_text, name_len) != 0
    ):
        return 0
    h.link = session.last_link
    h.queues_len = 0
    return fast_publish(h, p, 5 + name_len, end, first == c"H")


cdef Py_ssize_t message_frame(
    RouteProtocol h, const char* p, const char* end, char first
) except -1:
    """Parse RMSG, HMSG or LMSG; return the bytes used, NEED_MORE or STOP."""
    cdef Message message
    cdef const char* line_end = line_end_of(h, p, end)
    cdef const char* at = p + 5
    cdef const char* stop
    cdef const char* word
    cdef Py_ssize_t size, used
    if line_end == NULL:
        return incomplete(h, p, end)
    stop = line_end - 1 if line_end[-1] == c"\r" else line_end
    h.queues_len = 0
    if first == c"L":
        next_word(&at, stop, &size)     # the leaf cluster of the origin: this server has none
    h.link = h.session.dedicated
    if h.link is None:
        word = next_word(&at, stop, &size)
        if word == NULL:
            return violate(h, BAD_ARGUMENTS, p, stop - p)
        h.link = h.session.link_named(word, size)
    message.subject = next_word(&at, stop, &message.subject_len)
    if message.subject == NULL or at == stop:
        return violate(h, BAD_ARGUMENTS, p, stop - p)
    if not message_line(h, &message, at + 1, stop, first != c"R", line_end):
        return violate(h, BAD_ARGUMENTS, p, stop - p)
    message.data = line_end + 1
    if h.session.trace:
        h.session.trace_operation("<<-", <bytes> p[:stop - p])
    used = payload(h, &message, p, end)
    if h.large != NULL and h.queues_len:
        h.kept_queues = h.queues[:h.queues_len]
        h.queues = PyBytes_AS_STRING(h.kept_queues)
    return used


cdef bint message_line(
    RouteProtocol h, Message* message, const char* at, const char* stop, bint has_headers,
    const char* line_end,
) except -1:
    """Read what follows the subject, `at` to `stop`; return whether it is valid."""
    cdef const char* words[4]
    cdef Py_ssize_t sizes[4]
    cdef int count = 0
    cdef int numbers = 2 if has_headers else 1
    cdef const char* p = at
    cdef const char* word
    cdef Py_ssize_t size
    while count < 4:
        word = next_word(&p, stop, &size)
        if word == NULL:
            break
        words[count] = word
        sizes[count] = size
        count += 1
    message.reply = NULL
    message.reply_len = 0
    message.header_len = message.data_len = 0
    if count < numbers:
        return False
    if count > numbers + 1 or p < stop:
        return queue_line(h, message, at, stop, numbers)
    if count == numbers + 1:
        message.reply = words[0]
        message.reply_len = sizes[0]
    if has_headers:
        message.header_len = parse_size(words[count - 2], sizes[count - 2])
    message.data_len = parse_size(words[count - 1], sizes[count - 1])
    if message.header_len < 0 or message.data_len < message.header_len:
        return False
    message.line = words[0]
    message.line_len = line_end + 1 - words[0]
    if (
        stop == line_end or words[count - 1] + sizes[count - 1] != stop
        or (has_headers and message.header_len == 0)
        or not is_single_spaced(words, sizes, count)
    ):
        set_line(h, message)
    return True


cdef bint is_single_spaced(const char** words, Py_ssize_t* sizes, int count) noexcept:
    """Return whether one space stands between the words."""
    cdef int i
    for i in range(1, count):
        if words[i] != words[i - 1] + sizes[i - 1] + 1 or words[i][-1] != c" ":
            return False
    return True


cdef bint queue_line(
    RouteProtocol h, Message* message, const char* at, const char* stop, int numbers
) except -1:
    """Read `| queue … size` or `+ reply queue … size`; return whether it is valid."""
    cdef Py_ssize_t size = 0
    cdef const char* mark = next_word(&at, stop, &size)
    cdef int _i
    if size != 1 or (mark[0] != c"|" and mark[0] != c"+"):
        return False
    if mark[0] == c"+":
        message.reply = next_word(&at, stop, &message.reply_len)
    for _i in range(numbers):
        while stop > at and is_blank(stop[-1]):
            stop -= 1
        size = 0
        while stop > at and not is_blank(stop[-1]):
            stop -= 1
            size += 1
        message.header_len = message.data_len
        message.data_len = parse_size(stop, size)
        if message.data_len < 0:
            return False
    # The numbers were read from the last one on: first the size of all, then that of the headers.
    if numbers == 1:
        message.header_len = 0
    else:
        message.header_len, message.data_len = message.data_len, message.header_len
    h.queues = at
    h.queues_len = stop - at
    return message.header_len <= message.data_len and set_line(h, message) == 0


cdef int set_line(RouteProtocol h, Message* message) except -1:
    """Give a message a control line of its own: what a client's frame has behind the subject."""
    cdef Py_ssize_t need = message.reply_len + 2 * DECIMAL_BYTES_MAX + 4
    cdef char* to
    if need > h.line_bytes:
        to = <char*> realloc(h.line, need)
        if to == NULL:
            raise MemoryError
        h.line = to
        h.line_bytes = need
    to = h.line
    if message.reply != NULL:
        memcpy(to, message.reply, message.reply_len)
        message.reply = to
        to += message.reply_len
        to[0] = c" "
        to += 1
    if message.header_len:
        to = put_decimal(to, message.header_len)
        to[0] = c" "
        to += 1
    to = put_decimal(to, message.data_len)
    memcpy(to, b"\r\n", 2)
    message.line = h.line
    message.line_len = to + 2 - h.line
    return 0
