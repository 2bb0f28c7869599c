"""What of a message can be sent to a client, whatever wrote its record.

A client's subject is one word of its PUB line, and of a stream's subjects: it has no space and no
line end in it, and no empty token. A checksum proves only that somebody wrote the record so. What
is read from an archive, from another stream or from the disk is held to the same, so that nothing
that is sent can begin another line.

Of headers that are no header block, which no client could parse, nothing is stored, be they a
client's, an archive's or another stream's.
"""

from libc.stddef cimport size_t
from libc.string cimport memcmp

cdef enum:
    EMPTY_HEADERS = 12          # "NATS/1.0\r\n\r\n": the shortest header block
    VERSION_BYTES = 8           # "NATS/1.0": each begins so


cdef inline Py_ssize_t sendable_headers(const char* headers, Py_ssize_t length) noexcept nogil:
    """How many of these bytes are stored as headers: all, or none."""
    if length < EMPTY_HEADERS or memcmp(headers, b"NATS/1.0", VERSION_BYTES) != 0:
        return 0
    return length


cdef inline bint is_sendable(const char* subject, size_t length) noexcept nogil:
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
