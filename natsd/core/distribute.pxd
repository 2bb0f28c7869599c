"""Delivery of one message to a match result: every plain subscription and one member of each queue
group.

Inlined where messages enter the server: in client connections and in the server's own publishers.
"""

from libc.stdint cimport int64_t, uint32_t

from natsd.core.routing cimport MatchResult, Message, QueueResult, Sink, Subscription


cdef inline int deliver_to_one(
    QueueResult* group, Message* message, Reactor reactor, Sink excluded
) except -1:
    """Deliver to a random member of this server; if it refuses, to the next one that accepts.

    A member whose sink is `excluded` is skipped. Returns 1 if a member took the message, else 0.
    """
    cdef Subscription sub
    cdef uint32_t _i
    cdef uint32_t pick = reactor.random(group.members.count)
    for _i in range(group.members.count):
        sub = <Subscription>group.members.subs[pick]
        if sub.sink is not excluded and sub.sink.deliver(sub, message):
            return 1
        pick += 1
        if pick == group.members.count:
            pick = 0
    return 0


cdef inline int64_t deliver_to_plain(
    MatchResult result, Message* message, Sink excluded
) except -1:
    """Deliver to the plain subscriptions of this server whose sink is not `excluded`."""
    cdef Subscription sub
    cdef uint32_t i
    cdef int64_t delivered = 0
    for i in range(result.plain_local.count):
        sub = <Subscription>result.plain_local.subs[i]
        if sub.sink is not excluded:
            delivered += sub.sink.deliver(sub, message)
    return delivered


cdef inline int64_t distribute(
    MatchResult result, Message* message, Reactor reactor, Sink excluded
) except -1:
    """Deliver to every subscription whose sink is not `excluded` (None: to all).

    Returns the number of subscriptions that took the message; another server counts as one.
    """
    cdef uint32_t i
    cdef int64_t delivered
    if result.has_remote:
        return distribute_widely(result, message, reactor, excluded)
    delivered = deliver_to_plain(result, message, excluded)
    for i in range(result.queue_count):
        delivered += deliver_to_one(&result.queue_groups[i], message, reactor, excluded)
    return delivered


cdef int64_t distribute_widely(
    MatchResult result, Message* message, Reactor reactor, Sink excluded
) except -1
cdef int64_t distribute_routed(
    MatchResult result, Message* message, Reactor reactor, const char* queues, Py_ssize_t length
) except -1
