"""Message tracing on the message path: detect requested traces, and record deliveries.

    HPUB ─ may_be_traced? ─ no ──▶ distribute                    every other message
                          └ yes ─▶ begin_trace ─▶ distribute_traced ─▶ trace.send()
                       (client, route)               ├▶ sink.deliver_traced(sub, traced)
                                                     └▶ other servers: traced_routes.pyx

Promise
- A message without headers pays one branch. A message with headers pays a check of the beginnings
  of its header lines; nothing else is read unless one of them is a trace header.
- `Message` and `Sink.deliver` know nothing of tracing: a traced message takes a slow path with
  Python objects.
- With trace-only no sink's `deliver` is called.

A sink that records its deliveries defines `deliver_traced(sub, traced) -> bool`. It delivers the
message, or with `traced.trace.is_only` determines what it would do, and returns whether the message
was, or would be, taken.

Source: ADR-41; nats-server's server/msgtrace.go.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memchr

from natsd.core.reserved cimport is_reserved_subject
from natsd.core.routing cimport (
    MatchResult, Message, QueueResult, Sink, Subscription, plain_at, wire_bytes,
)

cdef enum:
    HEADERS_SHOWN_MAX = 1024    # headers in a trace; of later ones only the trace headers are added

cdef tuple TRACE_HEADERS = (
    b"Nats-Trace-Dest", b"Nats-Trace-Only", b"Nats-Trace-Origin-Account", b"Nats-Trace-Hop",
    b"traceparent", b"Accept-Encoding",
)

NO_ECHO = "Not delivered because of no echo"
CLIENT_CLOSED = "Not delivered because client is closed"
SUBJECT_DENIED = "Not delivered because subscription denies this subject"
AUTO_UNSUBSCRIBED = "Not delivered because auto-unsubscribe exceeded"
NOT_STALLED = "Not delivered because fast producer not stalled and consumer is slow"


REMOTE_CANNOT_RECORD = (
    "Message delivered but remote does not support message tracing so no trace event generated "
    "from there"
)
REMOTE_CANNOT_TRACE = "Not delivered because remote does not support message tracing"


cdef class TracedMessage:
    """A message whose deliveries are recorded in `trace`."""


cdef bint deliver_unrecorded(Subscription sub, TracedMessage traced) except -1:
    """Deliver to a sink that records nothing (see tracing.pxd)."""
    if traced.trace.is_only:
        return not sub.closed
    return sub.sink.deliver(sub, <Message*> traced.message)


cdef bint deliver_traced(Subscription sub, TracedMessage traced, Sink publisher) except -1:
    """Deliver to one subscription and record it; return whether it took the message.

    With trace-only nothing is delivered, and the result is whether it would take the message.
    """
    cdef object deliver
    if sub.sink is publisher:
        traced.trace.egress(publisher, sub, NO_ECHO)
        return False
    deliver = getattr(sub.sink, "deliver_traced", None)
    if deliver is None:
        return deliver_unrecorded(sub, traced)
    return deliver(sub, traced)


cdef int64_t distribute_traced(
    MatchResult result, TracedMessage traced, Reactor reactor, Sink publisher
) except -1:
    cdef uint32_t i
    cdef int64_t delivered
    if result.has_remote:
        return distribute_traced_widely(result, traced, reactor, publisher)
    delivered = traced_to_plain(result, traced, publisher)
    for i in range(result.queue_count):
        delivered += traced_to_one(&result.queue_groups[i], traced, reactor, publisher)
    return delivered


cdef int64_t traced_to_plain(
    MatchResult result, TracedMessage traced, Sink publisher
) except -1:
    """Deliver to the plain subscriptions of this server; return how many took the message."""
    cdef uint32_t i
    cdef int64_t delivered = 0
    for i in range(result.plain_local.count):
        delivered += deliver_traced(plain_at(result, i), traced, publisher)
    return delivered


cdef bint traced_to_one(
    QueueResult* group, TracedMessage traced, Reactor reactor, Sink publisher
) except -1:
    """Deliver to a random member of this server, or to the next one that takes the message.

    Returns whether a member took it.
    """
    cdef uint32_t _i
    cdef uint32_t pick = reactor.random(group.members.count) if group.members.count else 0
    for _i in range(group.members.count):
        if deliver_traced(<Subscription> group.members.subs[pick], traced, publisher):
            return True
        pick = (pick + 1) % group.members.count
    return False


cdef tuple with_headers(const Message* message, bytes headers, Message* changed):
    """Set `changed` to the message with other headers (see tracing.pxd)."""
    cdef Py_ssize_t header_len = PyBytes_GET_SIZE(headers)
    cdef bytes data = headers + message.data[message.header_len:message.data_len] + b"\r\n"
    cdef bytes line = b"%d %d\r\n" % (header_len, PyBytes_GET_SIZE(data) - 2)
    if message.reply != NULL:
        line = message.reply[:message.reply_len] + b" " + line
    changed[0] = message[0]
    changed.line = PyBytes_AS_STRING(line)
    changed.line_len = PyBytes_GET_SIZE(line)
    if message.reply != NULL:
        changed.reply = changed.line
    changed.data = PyBytes_AS_STRING(data)
    changed.data_len = PyBytes_GET_SIZE(data) - 2
    changed.header_len = header_len
    changed.owner = <PyObject*> data
    return line, data


def trace_headers(block) -> list:
    """Return the (name, value) pairs of a header block as a trace shows them, in order.

    A name ends at the first colon, even if that is on a later line. A value ends at CRLF, without
    the blanks around it. A header without a name or a value is left out. After HEADERS_SHOWN_MAX
    headers, only the first of each trace header that is still missing is added.
    """
    cdef bytes data = wire_bytes(block)
    cdef const char* at = data
    cdef const char* end = at + len(data)
    cdef const char* name
    cdef const char* name_end
    cdef const char* value_end
    cdef list found = []
    cdef set missing
    if not data.startswith(b"NATS/1.0\r\n"):
        return found
    at += VERSION_LINE_BYTES
    missing = set(TRACE_HEADERS)
    while at < end:
        name = at
        name_end = <const char*> memchr(at, c":", end - at)
        if name_end == NULL:
            break
        at = name_end + 1
        while at < end and (at[0] == c" " or at[0] == c"\t"):
            at += 1
        value_end = line_end(at, end)
        if value_end == NULL:
            break
        if name < name_end:
            note_header(found, missing, name, name_end, at, value_end)
        at = value_end + 2
    return found


cdef inline const char* line_end(const char* at, const char* end) noexcept:
    """Return the address of the next CRLF; NULL: there is none."""
    while at < end:
        at = <const char*> memchr(at, c"\r", end - at)
        if at == NULL or at + 1 >= end:
            return NULL
        if at[1] == c"\n":
            return at
        at += 1
    return NULL


cdef int note_header(
    list found, set missing, const char* name, const char* name_end, const char* value,
    const char* value_end,
) except -1:
    """Append a header to `found`, unless it has no value or there are too many headers."""
    cdef bytes key
    while value_end > value and (value_end[-1] == c" " or value_end[-1] == c"\t"):
        value_end -= 1
    if value == value_end:
        return 0
    if len(found) >= HEADERS_SHOWN_MAX:
        if not missing or name[0] not in (c"N", c"T", c"t", c"A"):
            return 0
        key = name[:name_end - name]
        if key.lower() == b"traceparent":
            key = b"traceparent"
        if key not in missing:
            return 0
        missing.discard(key)
    found.append((<bytes> name[:name_end - name], <bytes> value[:value_end - value]))
    return 0


def is_reserved(subject) -> bool:
    """Return whether clients must not publish to that subject."""
    cdef bytes text = wire_bytes(subject)
    return is_reserved_subject(text, len(text))


def is_asked(block, *, parents=False) -> bool:
    """Return the result of `may_be_traced`, for tests."""
    cdef bytes data = wire_bytes(block)
    return may_be_traced(data, len(data), parents)
