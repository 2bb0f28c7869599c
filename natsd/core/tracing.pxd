"""See tracing.pyx."""

from libc.stdint cimport int64_t
from libc.string cimport memchr, memcmp

from natsd.core.match_result cimport MatchResult
from natsd.core.reactor cimport Reactor
from natsd.core.subscription cimport Message, Sink, Subscription


cdef extern from *:
    """
    #include <string.h>

    #if defined(_WIN32)
    /* The standard library has none: the walk over the lines serves blocks of any length. */
    #define NATSD_WALKED_BYTES_MAX PY_SSIZE_T_MAX
    #define natsd_memmem(block, length, name, name_length) ((void *)(block))
    #else
    #define NATSD_WALKED_BYTES_MAX 2048
    #define natsd_memmem memmem
    #endif
    """
    const Py_ssize_t NATSD_WALKED_BYTES_MAX
    void* natsd_memmem(const void*, size_t, const void*, size_t) noexcept nogil

cdef enum:
    VERSION_LINE_BYTES = 10     # "NATS/1.0\r\n": every header block that asks for a trace begins so
    DESTINATION_BYTES = 16      # "Nats-Trace-Dest:"
    PARENT_BYTES = 12           # "traceparent:"


cdef class TracedMessage:       # of which somebody keeps a record of where it goes
    cdef const Message* message     # good until its delivery ends
    cdef readonly object trace      # MessageTrace in natsd/accounts/message_trace.py


cdef inline bint is_parent_line(const char* line) noexcept nogil:
    """Whether a line of enough bytes begins with `traceparent:`, in any case."""
    cdef const char* name = b"traceparent"
    cdef int at
    for at in range(PARENT_BYTES - 1):
        if line[at] | 0x20 != name[at]:
            return False
    return line[PARENT_BYTES - 1] == c":"


cdef inline bint may_be_traced(
    const char* block, Py_ssize_t length, bint parents_count
) noexcept nogil:
    """Whether a header block may ask for a trace: with `Nats-Trace-Dest`, or where
    `parents_count` with `traceparent`. It looks at the beginnings of lines only; what they say is
    read where this is true. A long block is searched in linear time, whatever it holds."""
    cdef const char* end = block + length
    cdef const char* line = block + VERSION_LINE_BYTES
    if length < VERSION_LINE_BYTES + PARENT_BYTES or line[-1] != c"\n":
        return False
    if length > NATSD_WALKED_BYTES_MAX:
        return parents_count or (
            natsd_memmem(block, length, b"\nNats-Trace-Dest:", DESTINATION_BYTES + 1) != NULL
        )
    while end - line >= PARENT_BYTES:
        if end - line >= DESTINATION_BYTES:
            if memcmp(line, b"Nats-Trace-Dest:", DESTINATION_BYTES) == 0:
                return True
        if parents_count and is_parent_line(line):
            return True
        line = <const char*> memchr(line, c"\n", end - line)
        if line == NULL:
            return False
        line += 1
    return False


# Deliver to all as `distribute` does, or say what would be done, and have each step recorded.
# `publisher` takes nothing of its own (None: it does).
cdef int64_t distribute_traced(
    MatchResult result, TracedMessage traced, Reactor reactor, Sink publisher
) except -1

# What a sink does that has nothing to record: the message is delivered, or with trace-only counts
# as if it had been.
cdef bint deliver_unrecorded(Subscription sub, TracedMessage traced) except -1

# The message with another header block; what it stands in while somebody holds that.
cdef tuple with_headers(const Message* message, bytes headers, Message* changed)


cdef inline Py_ssize_t line_length(const char* at, Py_ssize_t size) noexcept nogil:
    """Of the control line that begins there, its end included."""
    cdef const char* end = <const char*> memchr(at, c"\n", size)
    return size if end == NULL else end + 1 - at
