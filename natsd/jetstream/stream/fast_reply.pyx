"""The reply subject of a fast batch's message, read from its end without a Python object.

Promise
- Any bytes may be given: a subject that is not the reply of a fast batch is recognized, and nothing
  outside of it is read.

Source: ADR-50; nats-server's `getFastBatch`. The accepted values are those of nats-server 2.14.5,
observed.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp

cdef enum:
    SUFFIX_BYTES = 4            # ".$FI"
    FLOW_DEFAULT = 10
    FLOW_MAX = 65_535

cdef uint64_t NO_NUMBER = <uint64_t> -1


cdef const char* last_token(const char* start, const char** end, Py_ssize_t* length) noexcept nogil:
    """Return the token before `end`, which moves to the dot before it; NULL: there is no dot."""
    cdef const char* at = end[0]
    while at > start:
        at -= 1
        if at[0] == c'.':
            length[0] = end[0] - at - 1
            end[0] = at
            return at + 1
    return NULL


cdef uint64_t token_number(const char* text, Py_ssize_t length) noexcept nogil:
    """Return the number; NO_NUMBER if the text is none or too large."""
    cdef uint64_t number = 0
    cdef uint64_t digit
    cdef Py_ssize_t at
    for at in range(length):
        if not c'0' <= text[at] <= c'9':
            return NO_NUMBER
        digit = <uint64_t> (text[at] - c'0')
        if number > (NO_NUMBER - digit) // 10:
            return NO_NUMBER
        number = 10 * number + digit
    return number if length else NO_NUMBER


cdef bint parse_fast_reply(const char* reply, Py_ssize_t length, FastReply* out) noexcept nogil:
    cdef const char* end = reply + length - SUFFIX_BYTES
    cdef const char* token
    cdef Py_ssize_t token_len
    cdef uint64_t number
    if not is_fast_reply(reply, length):
        return False
    token = last_token(reply, &end, &token_len)
    number = NO_NUMBER if token == NULL else token_number(token, token_len)
    if number > <uint64_t> FAST_PING:
        return False
    out.operation = <FastOperation> number
    token = last_token(reply, &end, &token_len)
    number = 0 if token == NULL else token_number(token, token_len)
    if number == 0 or number == NO_NUMBER:
        return False
    out.sequence = number
    if out.operation == FAST_APPEND or out.operation == FAST_COMMIT_BEFORE:
        if number == 1:
            return False
    elif out.operation == FAST_START and number != 1:
        return False
    token = last_token(reply, &end, &token_len)
    if token == NULL:
        return False
    out.gaps_allowed = token_len == 2 and memcmp(token, b"ok", 2) == 0
    if not out.gaps_allowed and not (token_len == 4 and memcmp(token, b"fail", 4) == 0):
        return False
    token = last_token(reply, &end, &token_len)
    if token == NULL:
        return False
    number = token_number(token, token_len)
    if number == 0 or number == NO_NUMBER:
        number = FLOW_DEFAULT
    out.flow = <uint32_t> min(number, <uint64_t> FLOW_MAX)
    out.id = last_token(reply, &end, &out.id_len)
    return out.id != NULL


def fast_reply(bytes reply not None):
    """Return (id, flow, sequence, gaps allowed, operation), or None if it is no such reply."""
    cdef FastReply found
    if not parse_fast_reply(reply, len(reply), &found):
        return None
    return (
        found.id[:found.id_len], found.flow, found.sequence, bool(found.gaps_allowed),
        <int> found.operation,
    )
