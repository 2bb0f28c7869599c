"""Reserved subjects and replies, which clients must not publish with.

Source: nats-server's `isReservedReply` and `processInboundClientMsg` (server/client.go).
"""

from libc.string cimport memcmp


cdef inline bint may_be_reserved(const char* subject) noexcept:
    """Return whether a subject or reply may be reserved, judged by its first two bytes."""
    return subject[0] == c"_" and subject[1] != c"I" or subject[0] == c"$"


cdef inline bint begins(
    const char* text, Py_ssize_t length, const char* prefix, Py_ssize_t prefix_len
) noexcept:
    return length >= prefix_len and memcmp(text, prefix, prefix_len) == 0


cdef inline bint is_reserved_subject(const char* subject, Py_ssize_t length) noexcept:
    """Return whether a subject belongs to RAFT (`$NRG.`) or to gateway replies (`_GR_.`)."""
    return (
        begins(subject, length, b"$NRG.", 5)
        or length > 5 and begins(subject, length, b"_GR_.", 5)
    )


cdef inline bint is_reserved_reply(const char* reply, Py_ssize_t length) noexcept:
    """Return whether a reply is a subject of JetStream, the system, services or gateways.

    Replies need no permission, and the server publishes to them: to `$JS.API.STREAM.DELETE.S`, too.
    """
    return (
        begins(reply, length, b"$JS.", 4) or begins(reply, length, b"$SYS.", 5)
        or begins(reply, length, b"_R_.", 4) or length > 5 and begins(reply, length, b"_GR_.", 5)
    )
