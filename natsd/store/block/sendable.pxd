"""Checks that a subject and headers can be sent to a client, no matter what wrote the record.

A subject is one word of a client's PUB line and must fit a stream's subjects: it contains no space,
no line end and no empty token. A checksum only proves that a record was written like this. So
subjects from a snapshot, another stream or the disk are checked too: nothing that is sent can begin
another protocol line.

Headers that are no header block, which no client could parse, are not stored, no matter whether
they come from a client, a snapshot or another stream.
"""

from libc.stddef cimport size_t
from libc.string cimport memcmp

cdef enum:
    EMPTY_HEADERS = 12          # length of "NATS/1.0\r\n\r\n", the shortest header block
    VERSION_BYTES = 8           # length of "NATS/1.0", with which every header block begins


cdef inline Py_ssize_t sendable_headers(const char* headers, Py_ssize_t length) noexcept nogil:
    """Return how many of these bytes to store as headers: `length`, or 0 if they are no headers."""
    if length < EMPTY_HEADERS or memcmp(headers, b"NATS/1.0", VERSION_BYTES) != 0:
        return 0
    return length


cdef inline bint is_sendable(const char* subject, size_t length) noexcept nogil:
    """Return whether the subject can be sent: without spaces, line ends and empty tokens."""
    cdef size_t at
    cdef bint is_token_begun = False
    for at in range(length):
        if subject[at] == c".":
            if not is_token_begun:
                return False
            is_token_begun = False
        elif subject[at] in b" \t\r\n":
            return False
        else:
            is_token_begun = True
    return is_token_begun
