"""Whether a stored subject can stand on a protocol line, whatever wrote the record.

A client's subject is one word of its PUB line, and of a stream's subjects: it has no space and no
line end in it, and no empty token. A checksum proves only that somebody wrote the record so. What
is read from an archive, from another stream or from the disk is held to the same, so that nothing
that is sent can begin another line.
"""

from libc.stddef cimport size_t


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
