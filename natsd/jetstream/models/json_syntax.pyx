"""Syntax errors of JSON texts, in the words that clients of nats-server know.

Go has two readers with different error texts: requests of the API are decoded (json.Decoder), pull
requests and delays are unmarshalled (json.Unmarshal). The scanner has a state for each place in the
grammar, and one bit per level for "object or array": one pass over any text, no recursion, and no
more memory than the depth limit requires.

Source: RFC 8259; the texts are those with which nats-server 2.14 answers.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memset

cdef enum:
    DEPTH_MAX = 10_000
    DEPTH_BYTES = 1_250

cdef enum State:
    VALUE                       # a value begins here
    VALUE_OR_END                # a value begins or the array ends
    KEY                         # a key begins here
    KEY_OR_END                  # a key begins or the object ends
    COLON
    AFTER_PAIR
    AFTER_ELEMENT
    AFTER_ALL

cdef const char* PLACES[8]
PLACES = [
    b"looking for beginning of value", b"looking for beginning of value",
    b"looking for beginning of object key string", b"looking for beginning of object key string",
    b"after object key", b"after object key:value pair", b"after array element",
    b"after top-level value",
]


cdef struct Scanner:
    const unsigned char* start
    const unsigned char* at
    const unsigned char* end
    const char* place           # where the wrong character stands; NULL: too deep
    int depth
    int deepest
    unsigned char[DEPTH_BYTES] is_object


cdef inline bint is_digit(unsigned char c) noexcept nogil:
    return c"0" <= c <= c"9"


cdef bint skip_digits(Scanner* scan, const char* place) noexcept nogil:
    """Skip at least one digit."""
    if scan.at == scan.end or not is_digit(scan.at[0]):
        scan.place = place
        return False
    while scan.at < scan.end and is_digit(scan.at[0]):
        scan.at += 1
    return True


cdef bint skip_number(Scanner* scan) noexcept nogil:
    if scan.at[0] == c"-":
        scan.at += 1
    if scan.at < scan.end and scan.at[0] == c"0":
        scan.at += 1
    elif not skip_digits(scan, b"in numeric literal"):
        return False
    if scan.at < scan.end and scan.at[0] == c".":
        scan.at += 1
        if not skip_digits(scan, b"after decimal point in numeric literal"):
            return False
    if scan.at < scan.end and (scan.at[0] == c"e" or scan.at[0] == c"E"):
        scan.at += 1
        if scan.at < scan.end and (scan.at[0] == c"+" or scan.at[0] == c"-"):
            scan.at += 1
        return skip_digits(scan, b"in exponent of numeric literal")
    return True


cdef inline bint is_hexadecimal(unsigned char c) noexcept nogil:
    return is_digit(c) or c"a" <= c <= c"f" or c"A" <= c <= c"F"


cdef bint skip_escape(Scanner* scan) noexcept nogil:
    """Skip the characters after a backslash."""
    if scan.at == scan.end:
        return False
    if scan.at[0] != c"u":
        scan.place = b"in string escape code"
        if scan.at[0] not in b'bfnrt\\/"':
            return False
        scan.at += 1
        return True
    scan.at += 1
    scan.place = b"in \\u hexadecimal character escape"
    for _ in range(4):
        if scan.at == scan.end or not is_hexadecimal(scan.at[0]):
            return False
        scan.at += 1
    return True


cdef bint skip_string(Scanner* scan) noexcept nogil:
    scan.at += 1
    while scan.at < scan.end:
        if scan.at[0] == c'"':
            scan.at += 1
            return True
        if scan.at[0] == c"\\":
            scan.at += 1
            if not skip_escape(scan):
                return False
        elif scan.at[0] < 0x20:
            scan.place = b"in string literal"
            return False
        else:
            scan.at += 1
    return False


cdef bint skip_literal(Scanner* scan, const char* literal, const char** places) noexcept nogil:
    cdef int at = 0
    while literal[at]:
        if scan.at == scan.end or scan.at[0] != <unsigned char> literal[at]:
            scan.place = places[at]
            return False
        scan.at += 1
        at += 1
    return True


cdef const char* TRUE_PLACES[4]
TRUE_PLACES = [
    b"", b"in literal true (expecting 'r')", b"in literal true (expecting 'u')",
    b"in literal true (expecting 'e')",
]
cdef const char* FALSE_PLACES[5]
FALSE_PLACES = [
    b"", b"in literal false (expecting 'a')", b"in literal false (expecting 'l')",
    b"in literal false (expecting 's')", b"in literal false (expecting 'e')",
]
cdef const char* NULL_PLACES[4]
NULL_PLACES = [
    b"", b"in literal null (expecting 'u')", b"in literal null (expecting 'l')",
    b"in literal null (expecting 'l')",
]


cdef bint skip_scalar(Scanner* scan) noexcept nogil:
    cdef unsigned char c = scan.at[0]
    if c == c'"':
        return skip_string(scan)
    if c == c"-" or is_digit(c):
        return skip_number(scan)
    if c == c"t":
        return skip_literal(scan, b"true", TRUE_PLACES)
    if c == c"f":
        return skip_literal(scan, b"false", FALSE_PLACES)
    if c == c"n":
        return skip_literal(scan, b"null", NULL_PLACES)
    return False


cdef inline State after_value(Scanner* scan) noexcept nogil:
    cdef int level = scan.depth - 1
    if scan.depth == 0:
        return AFTER_ALL
    return AFTER_PAIR if scan.is_object[level >> 3] >> (level & 7) & 1 else AFTER_ELEMENT


cdef inline bint is_close(State state, unsigned char c) noexcept nogil:
    if c == c"}":
        return state == KEY_OR_END or state == AFTER_PAIR
    return c == c"]" and (state == VALUE_OR_END or state == AFTER_ELEMENT)


cdef bint open_level(Scanner* scan) noexcept nogil:
    cdef int level = scan.depth
    cdef unsigned char bit = <unsigned char> (1 << (level & 7))
    if level == DEPTH_MAX:
        scan.place = NULL
        return False
    if scan.at[0] == c"{":
        scan.is_object[level >> 3] = scan.is_object[level >> 3] | bit
    else:
        scan.is_object[level >> 3] = scan.is_object[level >> 3] & ~bit
    scan.depth += 1
    scan.deepest = max(scan.deepest, scan.depth)
    scan.at += 1
    return True


cdef bint step(Scanner* scan, State* state) noexcept nogil:
    """Skip the next token, which is not blank."""
    cdef unsigned char c = scan.at[0]
    scan.place = PLACES[<int> state[0]]
    if is_close(state[0], c):
        scan.depth -= 1
        scan.at += 1
        state[0] = after_value(scan)
    elif state[0] == VALUE or state[0] == VALUE_OR_END:
        if c == c"{" or c == c"[":
            state[0] = KEY_OR_END if c == c"{" else VALUE_OR_END
            return open_level(scan)
        if not skip_scalar(scan):
            return False
        state[0] = after_value(scan)
    elif state[0] == KEY or state[0] == KEY_OR_END:
        if c != c'"' or not skip_string(scan):
            return False
        state[0] = COLON
    elif state[0] == COLON and c == c":":
        scan.at += 1
        state[0] = VALUE
    elif c == c"," and (state[0] == AFTER_PAIR or state[0] == AFTER_ELEMENT):
        scan.at += 1
        state[0] = KEY if state[0] == AFTER_PAIR else VALUE
    else:
        return False
    return True


cdef str quoted(unsigned char c):
    """Return the character in quotes, as Go quotes it."""
    if c == c"'":
        return "'\\''"
    if c == c'"':
        return "'\"'"
    shown = {7: "\\a", 8: "\\b", 12: "\\f", 10: "\\n", 13: "\\r", 9: "\\t", 11: "\\v", 92: "\\\\"}
    if c in shown:
        return f"'{shown[c]}'"
    if c < 0x20 or c == 0x7f:
        return f"'\\x{c:02x}'"
    if 0x80 <= c <= 0xa0 or c == 0xad:
        return f"'\\u{c:04x}'"
    return f"'{chr(c)}'"


cdef State scan_over(Scanner* scan, bytes text) noexcept:
    """Scan to the end, or to the first error; `place` names the position in the grammar."""
    cdef State state = VALUE
    memset(scan, 0, sizeof(Scanner))
    scan.at = scan.start = <const unsigned char*> PyBytes_AS_STRING(text)
    scan.end = scan.at + PyBytes_GET_SIZE(text)
    while True:
        while scan.at < scan.end and scan.at[0] in b" \t\r\n":
            scan.at += 1
        if scan.at == scan.end or not step(scan, &state):
            return state


cdef str too_deep(Scanner* scan):
    return f"invalid character {quoted(scan.at[0])} exceeded max depth"


cdef str offset_of(Scanner* scan):
    return f" at offset {scan.at - scan.start + 1}"


def json_error(bytes text not None):
    """Return the error of a text that must be one JSON value, as json.Unmarshal words it.

    None: the text is valid.
    """
    cdef Scanner scan
    cdef State state = scan_over(&scan, text)
    if scan.at == scan.end:
        return None if state == AFTER_ALL else "unexpected end of JSON input"
    if scan.place == NULL:
        return too_deep(&scan)
    return f"invalid character {quoted(scan.at[0])} {scan.place.decode()}"


def depth_error(bytes text not None, int most):
    """Return the error of a text whose first JSON value has more than `most` levels.

    None: it has not.
    """
    cdef Scanner scan
    scan_over(&scan, text)
    if scan.at < scan.end and scan.place == NULL:
        return too_deep(&scan) + offset_of(&scan)
    return "exceeded max depth" if scan.deepest > most else None


def syntax_error(bytes body not None) -> str:
    """Return the error of a text that holds no JSON value, or more than one.

    The words are those of Go's json.Decoder.
    """
    cdef Scanner scan
    cdef State state = scan_over(&scan, body)
    if scan.at == scan.end:
        return "unexpected EOF"
    if scan.place == NULL:
        return too_deep(&scan) + offset_of(&scan)
    if state == AFTER_ALL:
        scan.place = PLACES[<int> VALUE]
    return f"invalid character {quoted(scan.at[0])} {scan.place.decode()}{offset_of(&scan)}"
