"""Route links: one account on one route, in both directions.

    local interest of the account ─ interest_changed ─▶ RS+ $G foo       to the peer
    messages for the peer ─ distribute ─ note, forward ─▶ RMSG $G foo 5  to the peer
    RS+ $G bar of the peer ─ subscribe ─▶ Subscription (is_remote) in the account's SubList

Promise
- The peer is told when the first local subscription to a subject comes and when the last one goes,
  and of each change of a queue group's weight. It is told of everything once `carry` is called, in
  slices; what is told twice is the same as told once.
- A message goes to a peer at most once: one frame names all queue groups of which the peer shall
  serve a member.
- A message that a stream delivers under another subject than the one that was matched travels
  under the matched one; its own subject stands in its reply behind an `@`.
- What is appended is bounded by the endpoint: a peer that does not read is closed, and learns of
  the interest again when it is connected again.

Source: nats-server's `sendSubsToRoute`, `updateRouteSubscriptionMap`, `processRemoteSub` and
`msgHeaderForRouteOrLeaf` (server/route.go, server/client.go).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from natsd.core.decimal cimport DECIMAL_BYTES_MAX, put_decimal
from natsd.core.routing cimport (
    WEIGHT_MAX, InterestPeer, MatchResult, Message, SubList, Subscription, detach, is_routed,
    new_subscription, queue_of,
)

from natsd.core.routing import InvalidSubject

cdef enum:
    ROUTED_BYTES = 12               # "RMSG ", "| ", three spaces, and two to spare
    REPLAY_PENDING_MAX = 1 << 20    # a replay waits while the peer has not taken so many bytes

cdef double REPLAY_PAUSE_S = 0.005


cdef bytes subscription_key(bytes origin, bytes subject, bytes queue):
    """Return by what RS- or LS- names a subscription; `origin` is empty for RS+."""
    if not origin and queue is None:
        return subject
    return b"%b\0%b %b" % (origin, subject, queue or b"")


cdef class RouteLink(InterestPeer):
    """One account on one route."""

    def __init__(self, RouteSession session not None, account, bint is_dedicated):
        """Create a link that tells the peer nothing yet; with `is_dedicated` frames do not name
        the account.
        """
        self.session = session
        self.account = account
        self.sublist = account.sublist
        self.account_counters = account.counters
        self.name = b"" if is_dedicated else account.name.encode() + b" "
        self.subscriptions = {}

    def __dealloc__(self):
        free(self.queues)

    # ---- messages for the peer

    cdef int deliver(self, Subscription sub, Message* message) except -1:
        """Send a message to the peer for one of its subscriptions."""
        cdef MatchResult result = self.sublist.lookup(message.subject, message.subject_len)
        if sub.closed or is_routed(message.origin):
            return 0
        if sub.queue_len:
            self.note_queue(queue_of(sub), sub.queue_len)
        return self.forward(result, message)

    cdef int note_queue(self, const char* name, Py_ssize_t length) except -1:
        """Let the next frame name a queue group. Raises MemoryError."""
        cdef Py_ssize_t need = self.queues_len + length + 1
        cdef char* room
        if need > self.queues_capacity:
            room = <char*> realloc(self.queues, 2 * need)
            if room == NULL:
                raise MemoryError
            self.queues = room
            self.queues_capacity = 2 * need
        memcpy(self.queues + self.queues_len, name, length)
        self.queues[need - 1] = c" "
        self.queues_len = need
        return 0

    cdef int forward(self, MatchResult result, Message* message) except -1:
        """Append the frame of a message, for the noted queue groups; return whether it was taken.

        `result` is the match by which the peer gets it.
        """
        cdef Endpoint endpoint = self.session.endpoint
        cdef Outbound* out = &endpoint.out
        cdef Py_ssize_t size = message.data_len + 2
        cdef bint by_reference = size > BY_REFERENCE_BYTES
        cdef Py_ssize_t head = (
            ROUTED_BYTES + PyBytes_GET_SIZE(self.name) + result.subject_len + self.queues_len
            + message.line_len + message.subject_len
        )
        cdef Py_ssize_t need = head if by_reference else head + size
        cdef char* to
        if endpoint.reason is not None:
            return 0
        if (out.limit - out.position < need or by_reference) and (
            not endpoint.make_room(need, head + size)
        ):
            return 0
        to = out.position
        memcpy(to, b"HMSG " if message.header_len else b"RMSG ", 5)
        to = put_short(to + 5, PyBytes_AS_STRING(self.name), PyBytes_GET_SIZE(self.name))
        to = put_short(to, result.subject, result.subject_len)
        to[0] = c" "
        to = put_routed_line(to + 1, self, result, message)
        if by_reference:
            out.position = to
            out_push(out, self.session.reactor.pool, message.data, size, message.owner)
            if message.owner == NULL:
                self.session.reactor.has_borrowed = True
        else:
            memcpy(to, message.data, size)
            out.position = to + size
        self.out_msgs += 1
        self.out_bytes += message.data_len
        self.session.out_msgs += 1
        self.session.out_bytes += message.data_len
        count_routed_out(self.account_counters, message.data_len)
        count_routed_out(self.session.reactor.counters, message.data_len)
        if self.session.trace:
            trace_routed(self, result, message)
        if rarely(is_measured(message.subject, message.subject_len)):
            self.session.response_measured(
                message.subject[:message.subject_len],
                None if message.origin.session == NULL else <object> message.origin.session,
            )
        if not endpoint.is_dirty:
            self.session.reactor.mark_dirty(endpoint)
        return 1

    # ---- interest of this server

    cdef int interest_changed(self, Subscription sub, int64_t before, int64_t after) except -1:
        if sub.queue_len or (before == 0) != (after == 0):
            self.announce(sub, after)
        return 0

    cdef int announce(self, Subscription sub, int64_t weight) except -1:
        """Tell the peer of the weight of an interest; 0: there is none any more."""
        cdef Endpoint endpoint = self.session.endpoint
        cdef Outbound* out = &endpoint.out
        cdef Py_ssize_t need = (
            PyBytes_GET_SIZE(self.name) + sub.subject_len + sub.queue_len + DECIMAL_BYTES_MAX + 10
        )
        cdef char* to
        if weight and not self.session.may_import(sub.text, sub.subject_len):
            return 0
        if endpoint.reason is not None or (
            out.limit - out.position < need and not endpoint.make_room(need, need)
        ):
            return 0
        self.session.reactor.congested = None   # publishers do not wait because of protocol text
        to = out.position
        memcpy(to, b"RS+ " if weight else b"RS- ", 4)
        to = put_short(to + 4, PyBytes_AS_STRING(self.name), PyBytes_GET_SIZE(self.name))
        to = put_short(to, sub.text, sub.subject_len)
        if sub.queue_len:
            to[0] = c" "
            to = put_short(to + 1, queue_of(sub), sub.queue_len)
            if weight:
                to[0] = c" "
                to = put_decimal(to + 1, min(weight, <int64_t> WEIGHT_MAX))
        memcpy(to, b"\r\n", 2)
        if self.session.trace:
            self.session.trace_operation("->>", <bytes> out.position[:to - out.position])
        out.position = to + 2
        if not endpoint.is_dirty:
            self.session.reactor.mark_dirty(endpoint)
        return 0

    cdef int tell(self, bytes line) except -1:
        """Send a line of the protocol to the peer."""
        if self.session.trace:
            self.session.trace_operation("->>", line)
        return self.session.endpoint.append(
            PyBytes_AS_STRING(line + b"\r\n"), PyBytes_GET_SIZE(line) + 2
        )

    cdef int carry(self) except -1:
        """Tell the peer of all local interest, and of its changes from now on."""
        if not self.is_carried:
            self.is_carried = True
            self.sublist.add_peer(self)
        self.replay(b"")
        return 0

    def replay(self, bytes after not None) -> None:
        """Tell the peer of the local interest behind a subject, a slice in each turn of the loop.

        Interest that the peer must not be told of is taken back, in case it was.
        """
        cdef Endpoint endpoint = self.session.endpoint
        cdef object loop = self.session.reactor.loop
        cdef bytes subject, queue
        cdef bint may
        if endpoint.reason is not None or not self.is_carried:
            return
        if endpoint.pending() > REPLAY_PENDING_MAX:
            loop.call_later(REPLAY_PAUSE_S, self.replay, after)
            return
        rows, after = self.sublist.interests(after, local=True)
        for subject, queue, weight in rows:
            may = self.session.may_import(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
            if not may and self.session.permissions_since_begin == 0:
                continue
            words = (b"RS+ " if may else b"RS- ") + self.name + subject
            if queue is not None:
                words += b" " + queue + (b" %d" % min(weight, WEIGHT_MAX) if may else b"")
            self.tell(words)
        if after:
            loop.call_soon(self.replay, after)

    # ---- interest of the peer

    cdef int subscribe(self, bytes origin, bytes subject, bytes queue, int64_t weight) except -1:
        """List a subscription of the peer, or change the weight of one that is listed."""
        cdef bytes key = subscription_key(origin, subject, queue)
        cdef Subscription sub = self.subscriptions.get(key)
        if sub is not None:
            if queue is not None:
                self.sublist.update_weight(sub, min(weight, WEIGHT_MAX))
            return 0
        if not self.session.may_export(subject, queue):
            return 0
        sub = new_subscription(
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject),
            NULL if queue is None else PyBytes_AS_STRING(queue),
            0 if queue is None else PyBytes_GET_SIZE(queue),
            NULL, 0, self,
        )
        sub.is_remote = True
        sub.weight = <int> min(max(weight, 0), WEIGHT_MAX)
        try:
            self.sublist.insert_sub(sub)
        except InvalidSubject:
            self.session.error(f"Invalid subject of a remote subscription: {text_of(subject)!r}")
            return 0
        self.subscriptions[key] = sub
        return 0

    cdef int unsubscribe(self, bytes origin, bytes subject, bytes queue) except -1:
        """Remove a subscription of the peer, if it is listed."""
        cdef Subscription sub = self.subscriptions.pop(
            subscription_key(origin, subject, queue), None
        )
        if sub is not None:
            self.sublist.remove_sub(sub)
            detach(sub)
        return 0

    def drop_forbidden(self) -> None:
        """Remove the subscriptions of the peer that are not exported to it any more."""
        cdef Subscription sub
        for key, sub in list(self.subscriptions.items()):
            if not self.session.may_export(sub.subject_bytes, sub.queue_bytes):
                del self.subscriptions[key]
                self.sublist.remove_sub(sub)
                detach(sub)

    cdef int close(self) except -1:
        """End the link: the peer is told nothing more, and its subscriptions are removed."""
        self.is_carried = False
        self.memo = None
        self.sublist.remove_peer(self)
        subscriptions, self.subscriptions = self.subscriptions, {}
        for sub in subscriptions.values():
            (<Subscription> sub).closed = True
        remove_remote(self.session.reactor, self.sublist, subscriptions)
        return 0

    @property
    def num_subscriptions(self) -> int:
        """Subscriptions of the peer in this account."""
        return len(self.subscriptions)

    def remote_subscriptions(self) -> list:
        """Return the subscriptions of the peer in this account."""
        return list(self.subscriptions.values())


cdef inline void count_routed_out(TrafficStats counters, Py_ssize_t size) noexcept:
    """Count a message for a peer in the totals of the server or of an account."""
    counters.out_msgs += 1
    counters.out_bytes += size
    counters.out_route_msgs += 1
    counters.out_route_bytes += size


def remove_remote(Reactor reactor not None, SubList sublist not None, dict subscriptions) -> None:
    """Remove subscriptions of a peer, REMOVED_PER_TURN in each turn of the loop."""
    cdef list batch = []
    while subscriptions and len(batch) < REMOVED_PER_TURN:
        batch.append(subscriptions.popitem()[1])
    sublist.remove_batch(batch)
    for sub in batch:
        detach(<Subscription> sub)
    if subscriptions:
        reactor.loop.call_soon(remove_remote, reactor, sublist, subscriptions)


cdef char* put_routed_line(
    char* to, RouteLink link, MatchResult result, Message* message
) noexcept:
    """Write the rest of a control line behind the subject; return the address behind it."""
    cdef Py_ssize_t sizes = message.reply_len + 1 if message.reply != NULL else 0
    cdef bint is_renamed = message.reply != NULL and (
        message.subject_len != result.subject_len
        or memcmp(message.subject, result.subject, result.subject_len) != 0
    )
    if not is_renamed and link.queues_len == 0:
        return put_short(to, message.line, message.line_len)
    if link.queues_len:
        to[0] = c"|" if message.reply == NULL else c"+"
        to[1] = c" "
        to += 2
    if message.reply != NULL:
        to = put_short(to, message.reply, message.reply_len)
        if is_renamed:
            to[0] = c"@"
            to = put_short(to + 1, message.subject, message.subject_len)
        to[0] = c" "
        to += 1
    if link.queues_len:
        memcpy(to, link.queues, link.queues_len)
        to += link.queues_len
    return put_short(to, message.line + sizes, message.line_len - sizes)


cdef int trace_routed(RouteLink link, MatchResult result, Message* message) except -1:
    """Log a message that was sent to the peer."""
    link.session.trace_operation(
        "->>", (b"HMSG " if message.header_len else b"RMSG ") + link.name
        + result.subject[:result.subject_len] + b" " + link.queues[:link.queues_len]
        + message.line[:message.line_len - 2]
    )
    link.session.trace_payload("->>", message.data[:message.data_len], message.header_len)
    return 0
