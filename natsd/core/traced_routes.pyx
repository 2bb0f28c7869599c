"""Delivery of a traced message to subscriptions of several servers.

    publish with Nats-Trace-Dest: there
        ─▶ A: distribute_traced_widely ─ HMSG with Nats-Trace-Hop: 1 ─▶ B: distribute_traced_routed
               │                                                            │
               └▶ trace of A: … "eg" (kind 1, hop "1")         to `there`   └▶ trace of B: "in" …

Promise
- It goes to the same subscriptions as an untraced message (distribute.pyx).
- A message with trace-only goes to other servers too, because they tell what they would do; but not
  to a server that knows nothing of traces, which would deliver it.
- Each server that gets the message gets another hop number: 1, 2, … from the first server, 1.1,
  1.2, … from the server at hop 1.

Source: ADR-41; nats-server's `setHopHeader` (server/msgtrace.go).
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t

from natsd.core.routing cimport MatchResult, Message, QueueResult, Sink


cdef int64_t distribute_traced_widely(
    MatchResult result, TracedMessage traced, Reactor reactor, Sink publisher
) except -1:
    cdef PyObject* noted = NULL
    cdef RouteLink link
    cdef QueueResult* group
    cdef set refused = set()
    cdef uint32_t i
    cdef int64_t delivered = traced_to_plain(result, traced, publisher)
    for i in range(result.queue_count):
        if traced_to_one(&result.queue_groups[i], traced, reactor, publisher):
            delivered += 1
        else:
            refused.add(i)
    for i in range(result.plain_remote.count):
        link = link_of(result.plain_remote.subs[i])
        if link is not None:
            note(&noted, link)
    for i in refused:
        group = &result.queue_groups[i]
        if group.remote.count:
            note_member(&noted, group, <Message*> traced.message, reactor, False)
    return delivered + forward_traced(noted, result, traced)


cdef int64_t distribute_traced_routed(
    MatchResult result, TracedMessage traced, Reactor reactor, const char* queues,
    Py_ssize_t length
) except -1:
    cdef PyObject* noted = NULL
    cdef QueueResult* group
    cdef set refused = set()
    cdef const char* end = queues + length
    cdef Py_ssize_t size = 0
    cdef const char* name = next_word(&queues, end, &size)
    cdef bint is_rerouted = is_reroute_mark(name, size)
    cdef int64_t delivered = 0 if is_rerouted else traced_to_plain(result, traced, None)
    cdef uint32_t i
    while name != NULL:
        i = group_named(result, name, size)
        name = next_word(&queues, end, &size)
        if i == result.queue_count:
            continue
        if traced_to_one(&result.queue_groups[i], traced, reactor, None):
            delivered += 1
        else:
            refused.add(i)
    for i in refused:
        group = &result.queue_groups[i]
        if group.remote.count and not is_rerouted:
            note_member(&noted, group, <Message*> traced.message, reactor, True)
    return delivered + forward_traced(noted, result, traced)


cdef int64_t forward_traced(
    PyObject* noted, MatchResult result, TracedMessage traced
) except -1:
    """Forward the message on all noted links and record that; return how many took it.

    Forgets the notes.
    """
    cdef RouteLink link
    cdef int64_t taken = 0
    while noted != NULL:
        link = <RouteLink> noted
        noted = link.next_noted
        link.is_noted = False
        taken += forward_recorded(link, result, traced)
        link.queues_len = 0
    return taken


cdef bint forward_recorded(RouteLink link, MatchResult result, TracedMessage traced) except -1:
    """Forward the message with its next hop number; return whether the peer takes it."""
    cdef Message changed
    cdef object trace = traced.trace
    cdef bint is_known = link.session.takes_traces()
    cdef str hop = trace.next_hop()
    cdef str error = "" if is_known else REMOTE_CANNOT_RECORD
    cdef bint taken = False
    cdef object _kept
    if trace.is_only and not is_known:
        error = REMOTE_CANNOT_TRACE
    else:
        _kept = with_headers(
            traced.message, trace.at_hop(traced.message.data[:traced.message.header_len], hop),
            &changed,
        )
        taken = link.forward(result, &changed)
        if not taken:
            error = CLIENT_CLOSED
    trace.forwarded(link.session, hop, error)
    return taken
