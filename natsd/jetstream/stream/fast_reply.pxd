"""The reply subject of a fast batch's message, which says what the message is.

    <inbox>.<batch id>.<flow>.<gap mode>.<sequence>.<operation>.$FI
"""

from libc.stdint cimport uint32_t, uint64_t


cdef enum FastOperation:
    FAST_START = 0
    FAST_APPEND = 1
    FAST_COMMIT = 2             # this is the last message
    FAST_COMMIT_BEFORE = 3      # the message before this one was the last
    FAST_PING = 4

cdef struct FastReply:
    const char* id
    Py_ssize_t id_len
    uint64_t sequence           # within the batch, from 1
    uint32_t flow               # greatest number of messages between two flow messages
    bint gaps_allowed
    FastOperation operation

cdef inline bint is_fast_reply(const char* reply, Py_ssize_t length) noexcept nogil:
    return (
        length > 4 and reply[length - 1] == c'I' and reply[length - 2] == c'F'
        and reply[length - 3] == c'$' and reply[length - 4] == c'.'
    )

# Parse a reply subject. False: it is not that of a fast batch, or its values are not allowed.
cdef bint parse_fast_reply(const char* reply, Py_ssize_t length, FastReply* out) noexcept nogil
