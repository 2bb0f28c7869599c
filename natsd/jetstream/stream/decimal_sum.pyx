"""Sums of whole numbers in decimal text, computed digit by digit from the right.

Additions are by far the most frequent operation on a counter, and counters are read and stored in
decimal. A sum takes time in proportion to its number of digits and makes no Python object.

Numbers of any length are read and written as Go's big.Int does, which nats-server uses for
`Nats-Incr` (ADR-49).
"""

from libc.string cimport memcmp, memmove


cdef bint read_number(const char* text, Py_ssize_t length, Number* out) noexcept nogil:
    cdef Py_ssize_t at = 0
    out.is_negative = length > 0 and text[0] == c'-'
    if length > 0 and (text[0] == c'-' or text[0] == c'+'):
        text += 1
        length -= 1
    for at in range(length):
        if not c'0' <= text[at] <= c'9':
            return False
    at = 0
    while at < length - 1 and text[at] == c'0':
        at += 1
    out.digits = text + at
    out.length = length - at
    if length > 0 and out.digits[0] == c'0':
        out.is_negative = False
    return length > 0


cdef Number negated(const Number* number) noexcept nogil:
    cdef Number other = number[0]
    other.is_negative = not number.is_negative and number.digits[0] != c'0'
    return other


cdef Py_ssize_t put_sum(const Number* one, const Number* other, char* out) noexcept nogil:
    cdef const Number* more = one
    cdef const Number* less = other
    cdef bint is_sum = one.is_negative == other.is_negative
    cdef Py_ssize_t room, at, length
    cdef int digit, carry = 0
    if less.length > more.length or (
        less.length == more.length and memcmp(less.digits, more.digits, less.length) > 0
    ):
        more, less = less, more
    room = more.length + 1
    for at in range(room):
        digit = carry
        if at < more.length:
            digit += more.digits[more.length - 1 - at] - c'0'
        if at < less.length:
            if is_sum:
                digit += less.digits[less.length - 1 - at] - c'0'
            else:
                digit -= less.digits[less.length - 1 - at] - c'0'
        carry = 1 if digit > 9 else -1 if digit < 0 else 0
        out[room - at] = <char> (c'0' + digit - 10 * carry)
    at = 1
    while at < room and out[at] == c'0':
        at += 1
    length = room + 1 - at
    if more.is_negative and out[at] != c'0':
        out[0] = c'-'
        memmove(out + 1, out + at, length)
        return length + 1
    memmove(out, out + at, length)
    return length


# For tests.

def sum_of(bytes one not None, bytes other not None) -> bytes | None:
    """Return the sum; None if one of them is not a number."""
    cdef Number first, second
    cdef bytearray out = bytearray(max(len(one), len(other)) + 2)
    cdef char* to = out
    if not read_number(one, len(one), &first) or not read_number(other, len(other), &second):
        return None
    return bytes(out[:put_sum(&first, &second, to)])
