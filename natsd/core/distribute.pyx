"""Delivery of one message to subscriptions of several servers.

    distribute (distribute.pxd) ─ has_remote? ─▶ distribute_widely    a message published here
    RouteSession.publish ──────────────────────▶ distribute_routed    a message of a peer

What goes to another server is noted on its RouteLink, plain interest and queue groups alike, and
sent in one frame. Notes of two messages never meet: a delivery here may distribute another message
(imports do), so all of them come first, and no sink is called between the first note and the last
frame.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcmp

from natsd.core.routing cimport (
    MatchResult, Message, QueueResult, Sink, Subscription, is_routed,
)

# Stands in a frame before the names of queue groups if the server that sends it was to serve them
# and could not: plain subscriptions have the message from the publisher's server.
cdef bytes REROUTED = b"_rerouted_"


cdef inline bint is_reroute_mark(const char* name, Py_ssize_t size) noexcept:
    """Return whether the first name in a frame says that another server could not serve it."""
    return size == PyBytes_GET_SIZE(REROUTED) and (
        memcmp(name, PyBytes_AS_STRING(REROUTED), size) == 0
    )


cdef inline RouteLink link_of(PyObject* sub):
    """Return the link that a remote subscription belongs to; None: it has ended.

    A subscription that has ended may be listed for some turns more.
    """
    cdef Sink sink = (<Subscription> sub).sink
    if (<Subscription> sub).closed or not isinstance(sink, RouteLink):
        return None
    return <RouteLink> sink


cdef inline void note(PyObject** noted, RouteLink link) noexcept:
    """Add a link to the list of those that take the message, unless it is there."""
    if not link.is_noted:
        link.is_noted = True
        link.next_noted = noted[0]
        noted[0] = <PyObject*> link


cdef bint note_member(
    PyObject** noted, QueueResult* group, Message* message, Reactor reactor, bint is_rerouted
) except -1:
    """Note a random member of another server for a queue group; return whether there is one.

    A message that a server forwarded does not go back there.
    """
    cdef uint32_t pick = reactor.random(group.remote.count)
    cdef uint32_t _i
    cdef RouteLink link
    for _i in range(group.remote.count):
        link = link_of(group.remote.subs[pick])
        if link is not None and link.session.endpoint.reason is None and not (
            is_routed(message.origin) and message.origin.session == <PyObject*> link.session
        ):
            note(noted, link)
            if is_rerouted and link.queues_len == 0:
                link.note_queue(PyBytes_AS_STRING(REROUTED), PyBytes_GET_SIZE(REROUTED))
            link.note_queue(group.name, group.name_len)
            (<Subscription> group.remote.subs[pick]).delivered += 1
            return True
        pick += 1
        if pick == group.remote.count:
            pick = 0
    return False


cdef int64_t forward_noted(PyObject* noted, MatchResult result, Message* message) except -1:
    """Forward the message on all noted links; return how many took it. Forgets the notes."""
    cdef RouteLink link
    cdef int64_t taken = 0
    while noted != NULL:
        link = <RouteLink> noted
        noted = link.next_noted
        link.is_noted = False
        taken += link.forward(result, message)
        link.queues_len = 0
    return taken


cdef int64_t distribute_widely(
    MatchResult result, Message* message, Reactor reactor, Sink excluded
) except -1:
    """Do as `distribute` does for a result with subscriptions of other servers.

    A queue group is served by a member of this server if one takes the message. A message that
    another server forwarded goes to this server's plain subscriptions only; its queue groups are
    served by `distribute_routed`.
    """
    cdef PyObject* noted = NULL
    cdef RouteLink link
    cdef QueueResult* group
    cdef set refused = None
    cdef uint32_t i
    cdef int64_t delivered = deliver_to_plain(result, message, excluded)
    if is_routed(message.origin):
        return delivered
    for i in range(result.queue_count):
        group = &result.queue_groups[i]
        if group.members.count == 0:
            continue
        if deliver_to_one(group, message, reactor, excluded):
            delivered += 1
        else:
            refused = refused if refused is not None else set()
            refused.add(i)
    for i in range(result.plain_remote.count):
        link = link_of(result.plain_remote.subs[i])
        if link is not None:
            note(&noted, link)
            (<Subscription> result.plain_remote.subs[i]).delivered += 1
    for i in range(result.queue_count):
        group = &result.queue_groups[i]
        if group.remote.count and (
            group.members.count == 0 or refused is not None and i in refused
        ):
            note_member(&noted, group, message, reactor, False)
    return delivered + forward_noted(noted, result, message)


cdef int64_t distribute_routed(
    MatchResult result, Message* message, Reactor reactor, const char* queues, Py_ssize_t length
) except -1:
    """Deliver a message that another server forwarded, to the queue groups that it names too.

    `queues` are the names, separated by blanks. If no member here takes it, because the last one
    has left meanwhile or may not receive it, another server gets it, once: that one loses it if it
    has no better member, and so no message circles.
    """
    cdef PyObject* noted = NULL
    cdef QueueResult* group
    cdef set refused = None
    cdef const char* end = queues + length
    cdef Py_ssize_t size = 0
    cdef const char* name = next_word(&queues, end, &size)
    cdef bint is_rerouted = is_reroute_mark(name, size)
    cdef int64_t delivered = 0
    cdef uint32_t i
    if not is_rerouted:
        delivered = deliver_to_plain(result, message, None)
    while name != NULL:
        i = group_named(result, name, size)
        name = next_word(&queues, end, &size)
        if i == result.queue_count:
            continue
        group = &result.queue_groups[i]
        if group.members.count and deliver_to_one(group, message, reactor, None):
            delivered += 1
        elif group.remote.count and not is_rerouted:
            refused = refused if refused is not None else set()
            refused.add(i)
    for i in refused or ():
        note_member(&noted, &result.queue_groups[i], message, reactor, True)
    return delivered + forward_noted(noted, result, message)


cdef uint32_t group_named(MatchResult result, const char* name, Py_ssize_t length) noexcept:
    """Return the index of the queue group of that name; `queue_count`: there is none."""
    cdef QueueResult* group
    cdef uint32_t i
    for i in range(result.queue_count):
        group = &result.queue_groups[i]
        if group.name_len == length and memcmp(group.name, name, length) == 0:
            return i
    return result.queue_count
