"""The digest of a configuration: `sha256:` and the hash of its tree as JSON, as nats-server has it.

`-t`, the log and `/varz` show it. The JSON is that of Go's `encoding/json`: sorted keys, `<`, `>`,
`&` and line separators escaped, floats without an exponent between 1e-6 and 1e21, and a newline at
the end.

It is compiled because a file may hold ten thousand users, and a reload reads it as a whole.

Source: nats-server's `configDigest` (conf/parse.go).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.string cimport memcpy

from datetime import datetime
from decimal import Decimal

cdef enum:
    ROOM_MIN = 4096

cdef object FLOAT_PLAIN_MIN = 1e-6
cdef object FLOAT_PLAIN_MAX = 1e21
cdef dict JSON_ESCAPES = {
    ord('"'): b'\\"',
    ord("\\"): b"\\\\",
    ord("\b"): b"\\b",
    ord("\f"): b"\\f",
    ord("\n"): b"\\n",
    ord("\r"): b"\\r",
    ord("\t"): b"\\t",
}  # the other bytes that need an escape are \u00XX


def digest(tree) -> str:
    """Return the digest of a parsed file."""
    from hashlib import sha256

    cdef Json json = Json()
    json.value(tree)
    json.put(b"\n", 1)
    return f"sha256:{sha256(json.text[:json.length]).hexdigest()}"


@cython.final
cdef class Json:
    """A JSON text that grows."""

    cdef char* text
    cdef Py_ssize_t length, room

    def __dealloc__(self):
        PyMem_Free(self.text)

    cdef int put(self, const char* data, Py_ssize_t length) except -1:
        cdef char* moved
        cdef Py_ssize_t room
        if self.room - self.length < length:
            room = max(2 * self.room, self.length + length, ROOM_MIN)
            moved = <char*>PyMem_Realloc(self.text, room)
            if moved == NULL:
                raise MemoryError
            self.text, self.room = moved, room
        memcpy(self.text + self.length, data, length)
        self.length += length
        return 0

    cdef int put_bytes(self, bytes data) except -1:
        return self.put(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    cdef int value(self, object value) except -1:
        if isinstance(value, str):
            self.string(value)
        elif isinstance(value, dict):
            self.map(value)
        elif isinstance(value, list):
            self.items(value)
        elif isinstance(value, bool):
            self.put_bytes(b"true" if value else b"false")
        elif isinstance(value, float):
            self.put_bytes(go_float(value).encode())
        elif isinstance(value, datetime):
            self.string(f"{value:%Y-%m-%dT%H:%M:%SZ}".rjust(20, "0"))
        else:
            self.put_bytes(str(value).encode())
        return 0

    cdef int map(self, object tree) except -1:
        cdef char before = c"{"
        for key in sorted(tree):
            self.put(&before, 1)
            before = c","
            self.string(key)
            self.put(b":", 1)
            self.value(tree[key])
        return self.put_bytes(b"}" if tree else b"{}")

    cdef int items(self, object values) except -1:
        cdef char before = c"["
        for value in values:
            self.put(&before, 1)
            before = c","
            self.value(value)
        return self.put_bytes(b"]" if values else b"[]")

    cdef int string(self, object text) except -1:
        cdef Py_ssize_t length
        cdef const char* start
        cdef const char* at
        cdef const char* end
        cdef bytes escaped, encoded
        if text.isascii():
            start = PyUnicode_AsUTF8AndSize(text, &length)
        else:
            encoded = text.encode(errors="replace")
            start, length = PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded)
        at, end = start, start + length
        self.put(b'"', 1)
        while at < end:
            if may_need_escape(at[0]) and (escaped := escape_of(at)) is not None:
                self.put(start, at - start)
                self.put_bytes(escaped)
                at += 3 if is_separator(at) else 1
                start = at
            else:
                at += 1
        self.put(start, end - start)
        return self.put(b'"', 1)


cdef inline bint may_need_escape(unsigned char c) noexcept:
    return c < 0x20 or c in b'"\\<>&' or c == 0xE2


cdef inline bint is_separator(const char* at) noexcept:
    """Return whether the bytes here, which end in a zero, are U+2028 or U+2029."""
    return at[0] == c"\xe2" and at[1] == c"\x80" and (at[2] == c"\xa8" or at[2] == c"\xa9")


cdef bytes escape_of(const char* at):
    """Return the escape of the character here; None: it stands for itself."""
    cdef unsigned char c = at[0]
    if c < 0x80:
        return JSON_ESCAPES.get(c) or b"\\u%04x" % c
    if is_separator(at):
        return b"\\u2028" if at[2] == c"\xa8" else b"\\u2029"
    return None


cdef str go_float(object number):
    """Return a float as Go writes it."""
    if number == 0 or FLOAT_PLAIN_MIN <= abs(number) < FLOAT_PLAIN_MAX:
        return format(Decimal(repr(number)).normalize(), "f")
    mantissa, _, exponent = repr(number).partition("e")
    if not exponent:  # Python has no exponent for 0.00001
        mantissa, _, exponent = f"{Decimal(repr(number)):e}".lower().partition("e")
    sign = "-" if exponent.startswith("-") else "+"
    return f"{mantissa.removesuffix('.0')}e{sign}{exponent.lstrip('+-').lstrip('0')}"
