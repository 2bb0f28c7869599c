"""Declarations of tracing.pyx, and the inlined check for trace headers."""

from libc.stdint cimport int64_t
from libc.string cimport memchr

from natsd.core.routing cimport MatchResult, Message, QueueResult, Sink, Subscription


cdef extern from *:
    """
    #include <string.h>

    #define NATSD_ASKING "\\nNats-Trace-Dest:"
    #define NATSD_ASKING_BYTES 17
    #define NATSD_ASKING_D 12       /* where its `D` is: few header lines have one at all */
    #define NATSD_FIRST_D 21        /* behind the version line's end, which is at 9 */
    #define NATSD_BEHIND_D 8        /* with it: "Dest:", a letter, the line's end */

    #if defined(__SSE2__) || defined(_M_X64)
    #include <emmintrin.h>

    #define natsd_ds(place) \\
        _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(place)), _mm_set1_epi8('D'))

    /* Whether one of the Ds among the 16 bytes from `at` on stands where it has to. */
    #if defined(__GNUC__)
    __attribute__((noinline, cold, unused))
    #endif
    static int natsd_asks_here(const char *block, Py_ssize_t at) {
        unsigned ds = (unsigned)_mm_movemask_epi8(natsd_ds(block + at));
        for (; ds != 0; ds >>= 1, at++)
            if ((ds & 1) && at >= NATSD_FIRST_D && block[at - NATSD_ASKING_D] == '\\n'
                    && memcmp(block + at - NATSD_ASKING_D, NATSD_ASKING, NATSD_ASKING_BYTES) == 0)
                return 1;
        return 0;
    }

    static inline int natsd_asks(const char *block, Py_ssize_t length) {
        Py_ssize_t at = NATSD_FIRST_D, last = length - NATSD_BEHIND_D - 15;
        if (length < NATSD_FIRST_D + NATSD_BEHIND_D)
            return 0;
        for (; at + 16 < last; at += 32)
            if (_mm_movemask_epi8(_mm_or_si128(natsd_ds(block + at), natsd_ds(block + at + 16)))
                    && (natsd_asks_here(block, at) || natsd_asks_here(block, at + 16)))
                return 1;
        if (at < last && _mm_movemask_epi8(natsd_ds(block + at)) && natsd_asks_here(block, at))
            return 1;
        return _mm_movemask_epi8(natsd_ds(block + last)) && natsd_asks_here(block, last);
    }
    #else
    static inline int natsd_asks(const char *block, Py_ssize_t length) {
        const char *line = block + NATSD_FIRST_D - NATSD_ASKING_D, *end = block + length;
        while (line != NULL && end - line >= NATSD_ASKING_D + NATSD_BEHIND_D) {
            if (memcmp(line, NATSD_ASKING, NATSD_ASKING_BYTES) == 0)
                return 1;
            line = (const char *)memchr(line + 1, '\\n', (size_t)(end - line - 1));
        }
        return 0;
    }
    #endif
    """
    # True if a line after the version line begins with `Nats-Trace-Dest:` and has a value.
    bint natsd_asks(const char* block, Py_ssize_t length) noexcept nogil
    bint rarely "unlikely"(bint) noexcept nogil     # branch hint: the condition is mostly False

cdef enum:
    VERSION_LINE_BYTES = 10     # "NATS/1.0\r\n", which begins every block that requests a trace
    PARENT_BYTES = 12           # "traceparent:"
    ASKING_BLOCK_BYTES = 27     # size of the shortest block that requests a trace (`traceparent`)
    WALKED_BYTES_MAX = 2048     # larger blocks are not searched for "traceparent:" by `has_parent`


cdef class TracedMessage:       # a message whose deliveries are recorded
    cdef const Message* message     # valid until its delivery ends
    cdef readonly object trace      # MessageTrace (natsd/accounts/message_trace.py)


cdef inline bint is_parent_line(const char* line) noexcept nogil:
    """Return whether a line of at least PARENT_BYTES begins with `traceparent:`, in any case."""
    cdef const char* name = b"traceparent"
    cdef int at
    for at in range(PARENT_BYTES - 1):
        if line[at] | 0x20 != name[at]:
            return False
    return line[PARENT_BYTES - 1] == c":"


cdef inline bint has_parent(const char* block, Py_ssize_t length) noexcept nogil:
    """Return whether a line of the header block begins with `traceparent:`.

    For a block of more than WALKED_BYTES_MAX the result is True without a search.
    """
    cdef const char* end = block + length
    cdef const char* line = block + VERSION_LINE_BYTES
    if length > WALKED_BYTES_MAX:
        return True
    while end - line >= PARENT_BYTES:
        if is_parent_line(line):
            return True
        line = <const char*> memchr(line, c"\n", end - line)
        if line == NULL:
            return False
        line += 1
    return False


cdef inline bint may_be_traced(
    const char* block, Py_ssize_t length, bint parents_count
) noexcept nogil:
    """Return whether a header block may request a trace.

    It may with a `Nats-Trace-Dest` header or, if `parents_count`, with a `traceparent` header. Only
    the beginnings of lines are checked, in linear time for any block; if the result is True, the
    caller reads the values.
    """
    if length < ASKING_BLOCK_BYTES or block[VERSION_LINE_BYTES - 1] != c"\n":
        return False
    if rarely(natsd_asks(block, length)):
        return True
    return rarely(parents_count) and has_parent(block, length)


# Deliver to all as `distribute` does, or with trace-only determine who would get the message, and
# record each step. `publisher` gets no message of its own (None: it does). Returns the number of
# recipients that took, or would take, the message.
cdef int64_t distribute_traced(
    MatchResult result, TracedMessage traced, Reactor reactor, Sink publisher
) except -1

# The parts of it: all plain subscriptions of this server, and one member of a queue group.
cdef int64_t traced_to_plain(
    MatchResult result, TracedMessage traced, Sink publisher
) except -1
cdef bint traced_to_one(
    QueueResult* group, TracedMessage traced, Reactor reactor, Sink publisher
) except -1

# Deliver to a sink that records nothing; with trace-only, do not deliver. Returns whether the
# message was, or would be, taken.
cdef bint deliver_unrecorded(Subscription sub, TracedMessage traced) except -1

# Set `changed` to the message with another header block. Returns the objects that own its bytes:
# the caller must hold them as long as it uses `changed`.
cdef tuple with_headers(const Message* message, bytes headers, Message* changed)


cdef inline Py_ssize_t line_length(const char* at, Py_ssize_t size) noexcept nogil:
    """Return the length of the control line at `at`, its line end included."""
    cdef const char* end = <const char*> memchr(at, c"\n", size)
    return size if end == NULL else end + 1 - at
