"""The body of a pull request: nothing (one message), a number (a batch), or a JSON object.

The objects that clients usually send are read in place (flat_object.pxd). Others are read slowly
(slow_json.py), with errors in nats-server's words. A body that is neither an object nor a number
asks for one message.

Source: ADR-13; nats-server's `nextReqFromMsg` for the accepted forms.
"""

from libc.stdint cimport int64_t
from libc.string cimport memcmp, memcpy, memset


from natsd.jetstream.consumer.slow_json import read_pull_request
from natsd.jetstream.models.go_json import InvalidJson

cdef enum:
    BATCH_DIGITS_MAX = 18


cdef inline bint is_key(FlatPair* pair, const char* key, Py_ssize_t length) noexcept nogil:
    return pair.key_len == length and memcmp(pair.key, key, length) == 0


cdef int64_t* number_field(PullRequest* out, FlatPair* pair) noexcept nogil:
    if is_key(pair, b"batch", 5):
        return &out.batch
    if is_key(pair, b"expires", 7):
        return &out.expires_ns
    if is_key(pair, b"max_bytes", 9):
        return &out.max_bytes
    if is_key(pair, b"idle_heartbeat", 14):
        return &out.heartbeat_ns
    if is_key(pair, b"min_pending", 11):
        return &out.min_pending
    if is_key(pair, b"min_ack_pending", 15):
        return &out.min_ack_pending
    if is_key(pair, b"priority", 8):
        return &out.priority
    return NULL


cdef void set_id(PullRequest* out, const char* text, Py_ssize_t length) noexcept nogil:
    out.id_len = length
    memcpy(out.id, text, min(length, <Py_ssize_t> PIN_BYTES))


cdef void set_group(PullRequest* out, const char* text, Py_ssize_t length) noexcept nogil:
    out.group_len = length
    memcpy(out.group, text, min(length, <Py_ssize_t> GROUP_BYTES))


cdef bint read_flat(const char* body, Py_ssize_t length, PullRequest* out) noexcept nogil:
    """Read an object in place. False: it is unusual."""
    cdef FlatObject walk
    cdef FlatPair pair
    cdef FlatStep step
    cdef int64_t* field
    walk.at = body
    walk.end = body + length
    walk.is_open = False
    while True:
        step = flat_next(&walk, &pair)
        if step != FLAT_PAIR:
            return step == FLAT_END
        if pair.kind == FLAT_NUMBER:
            field = number_field(out, &pair)
            if field == NULL:
                return False
            field[0] = pair.number
        elif pair.kind == FLAT_TEXT:
            if is_key(&pair, b"id", 2):
                set_id(out, pair.text, pair.text_len)
            elif is_key(&pair, b"group", 5):
                set_group(out, pair.text, pair.text_len)
            else:
                return False
        elif is_key(&pair, b"no_wait", 7):
            out.no_wait = pair.kind == FLAT_TRUE
        else:
            return False


cdef bint read_number(const char* body, Py_ssize_t length, int64_t* number) noexcept nogil:
    cdef bint is_negative = body[0] == c"-"
    cdef Py_ssize_t at = 1 if is_negative or body[0] == c"+" else 0
    cdef int64_t value = 0
    if at == length or length - at > BATCH_DIGITS_MAX:
        return False
    for at in range(at, length):
        if not c"0" <= body[at] <= c"9":
            return False
        value = value * 10 + (body[at] - c"0")
    number[0] = -value if is_negative else value
    return True


cdef inline bint is_space(char c) noexcept nogil:
    return c == c" " or c"\t" <= c <= c"\r"


cdef int read_slowly(bytes body, PullRequest* out) except -1:
    read = read_pull_request(body)
    cdef bytes group = read.group.encode()
    cdef bytes pin = read.id.encode()
    out.batch = read.batch
    out.max_bytes = read.max_bytes
    out.expires_ns = read.expires
    out.heartbeat_ns = read.idle_heartbeat
    out.no_wait = read.no_wait
    out.min_pending = read.min_pending
    out.min_ack_pending = read.min_ack_pending
    out.priority = read.priority
    set_id(out, pin, len(pin))
    set_group(out, group, len(group))
    return 0


cdef object parse_pull_request(const char* body, Py_ssize_t length, PullRequest* out):
    memset(out, 0, sizeof(PullRequest))
    while length > 0 and is_space(body[length - 1]):
        length -= 1
    while length > 0 and is_space(body[0]):
        body += 1
        length -= 1
    if length == 0 or body[0] != c"{":
        if length == 0 or not read_number(body, length, &out.batch):
            out.batch = 1
        return None
    if not read_flat(body, length, out):
        try:
            read_slowly(body[:length], out)
        except InvalidJson as wrong:
            return str(wrong)
    out.is_object = True
    if out.heartbeat_ns > 0 and out.heartbeat_ns > out.expires_ns // 2:
        return "heartbeat value too large"
    return None


# For tests

def parse_request(bytes body):
    """Return the request as a dict, or a text that says what is wrong with it."""
    cdef PullRequest request
    cdef object wrong = parse_pull_request(body, len(body), &request)
    if wrong is not None:
        return wrong
    return {
        "batch": request.batch, "max_bytes": request.max_bytes, "expires": request.expires_ns,
        "idle_heartbeat": request.heartbeat_ns, "no_wait": bool(request.no_wait),
        "id": request.id[:min(request.id_len, <Py_ssize_t> PIN_BYTES)],
        "group": request.group[:min(request.group_len, <Py_ssize_t> GROUP_BYTES)],
        "min_pending": request.min_pending, "min_ack_pending": request.min_ack_pending,
        "priority": request.priority,
    }


def is_usual(bytes body) -> bool:
    """Tell whether the body is an object that is read in place."""
    cdef PullRequest request
    memset(&request, 0, sizeof(PullRequest))
    return read_flat(body, len(body), &request)
