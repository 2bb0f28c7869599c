"""The session of a route: the connection to another server of the cluster.

    RMSG of the peer ─▶ on_publish ─ match ─▶ distribute_routed ─▶ subscriptions of this server
    RS+ of the peer  ─▶ RouteLink.subscribe ─▶ the account's SubList
    carry(account)   ─▶ RouteLink: the account's interest and messages for the peer

Promise
- A message of the peer goes to subscriptions of this server, never to another route, so that in a
  full mesh every message travels once. If no member here takes what a queue group is to get, the
  message goes on once to another server, for the queue group alone.
- A traced message takes another way (traced_routes.pyx).
- The peer is trusted with the accounts' names, not with the memory of this server: lines, payloads
  and pending bytes are bounded.
- Deadlines (opening, pings, blocked writes) are checked in `sweep` only.

The subclass natsd/cluster/route.py handles INFO, CONNECT and the log. Source: nats-server's
`processInboundRoutedMsg` (server/route.go).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from libc.string cimport memcmp

from natsd.core.routing cimport ROUTE_KIND, MatchResult, Message, PermissionRules

from natsd.core.reasons import ClosedReason, ErrorText

cdef enum:
    FIRST_ROUTE_PING_NS = 1_000_000_000     # delay of the first ping after `begin`, without jitter
    REPLY_DOTS = 8                          # at least, in the reply subject of a consumer

cdef int64_t ROUTE_PING_INTERVAL_NS_MAX = 30_000_000_000
cdef bytes STREAM_ACK = b"$JS.ACK."


cdef class RouteSession(OpSession):
    """What a route means; it attaches itself and a parser to the endpoint."""

    def __init__(self, Endpoint endpoint not None, unsigned long long rid):
        OpSession.__init__(self, endpoint, ROUTE_KIND)
        self.rid = rid
        self.links = {}
        self.protocol = RouteProtocol(self)
        self.ping_due_ns = self.start_ns + self.ping_interval()
        endpoint.attach(self.protocol, self)

    # ---- hooks that the subclass overrides

    def error_received(self, str text) -> None:
        """Handle an -ERR; `text` is its argument."""

    def pong_received(self) -> None:
        """Handle a PONG, after the round-trip time was measured."""

    def find_account(self, bytes name):
        """Return the Account that the peer mentions; None: its frames are dropped."""
        return None

    def slow_consumer(self, str why, bint is_known=False) -> None:
        """Count and log that the peer reads too slowly; `why` is the exceeded limit."""
        self.reactor.counters.slow_consumers += 1
        self.reactor.counters.slow_routes += 1
        self.notice(f"Slow Consumer {'State' if is_known else 'Detected'}: {why}")

    def begin_trace(self, account, bytes subject, bytes headers, Py_ssize_t size):
        """Return how to treat a message of the peer that may request a trace; None: normally.

        The result is a `Decision` (natsd/clients/tracing.py).
        """
        return None

    def request_measured(self, account, bytes reply) -> None:
        """Handle that a request of the peer is delivered here, whose latency the peer measures."""

    def response_measured(self, bytes reply, responder) -> None:
        """Handle that the response to such a request goes to the peer.

        `responder` is the session that published it; None: the server itself did.
        """

    def takes_traces(self) -> bool:
        """Return whether the peer records what becomes of a traced message."""
        return True

    # ---- life

    def await_connect(self, int64_t timeout_ns) -> None:
        """Have `authentication_timed_out` called after `timeout_ns`, unless `begin` comes first."""
        self.authenticate_by_ns = monotonic_ns() + timeout_ns

    def begin(self, account=None) -> None:
        """Allow messages and interest: the handshake is over.

        With `account` the route is dedicated to it, and frames do not name the account.
        """
        cdef int64_t now_ns = monotonic_ns()
        self.authenticate_by_ns = 0
        self.has_begun = self.protocol.is_open = True
        self.permissions_since_begin = 0
        self.ping_due_ns = now_ns + min(<int64_t> FIRST_ROUTE_PING_NS, self.ping_interval())
        if account is not None:
            self.dedicated = self.links[account.name.encode()] = RouteLink(self, account, True)
            self.mention(self.dedicated)

    def carry(self, account) -> None:
        """Tell the peer of the account's local interest, and send the account's messages to it.

        Does nothing if this was called before.
        """
        cdef RouteLink link = self.link_for(account)
        if not link.is_carried:
            link.carry()

    def drop(self, account) -> None:
        """Undo `carry`, and forget the peer's interest in the account."""
        cdef bytes name = account.name.encode()
        cdef RouteLink link = self.links.pop(name, None)
        if link is self.last_link:
            self.mention(None)
        if link is self.dedicated:
            self.dedicated = None
        if link is not None:
            link.close()

    def link_for(self, account) -> RouteLink:
        """Return the link of an account, a new one if there is none."""
        cdef RouteLink link = self.links.get(account.name.encode())
        if link is None:
            link = self.links[account.name.encode()] = RouteLink(self, account, False)
        return link

    cdef RouteLink link_named(self, const char* name, Py_ssize_t length):
        """Return the link of the account that the peer mentions; None: it is unknown here."""
        cdef RouteLink link
        cdef bytes key
        if self.last_name_len == length + 1 and memcmp(self.last_name_text, name, length) == 0:
            return self.last_link
        key = name[:length]
        link = self.links.get(key)
        if link is None:
            account = self.find_account(key)
            if account is None:
                return None
            link = self.link_for(account)
        self.mention(link)
        return link

    cdef int mention(self, RouteLink link) except -1:
        """Note which account the peer mentioned last; None: none that is known."""
        self.last_link = link
        self.last_name_text = NULL
        self.last_name_len = 0
        if link is not None:
            self.last_name_text = PyBytes_AS_STRING(link.name)
            self.last_name_len = PyBytes_GET_SIZE(link.name)
        return 0

    def set_permissions(self, PermissionRules rules) -> None:
        """Apply rules from now on; None: everything passes.

        The peer is a user that publishes what this server imports, and subscribes to what this
        server exports. The peer is told again of the interest that it may know.
        """
        cdef RouteLink link
        self.rules = rules
        self.permissions_since_begin += 1
        for link in self.links.values():
            link.memo = None
            link.drop_forbidden()
            if link.is_carried:
                link.carry()

    def announce_again(self) -> None:
        """Tell the peer again of all interest that it may know."""
        cdef RouteLink link
        for link in self.links.values():
            if link.is_carried:
                link.carry()

    cdef bint may_import(self, const char* subject, Py_ssize_t length) except -1:
        return self.rules is None or self.rules.allows_publish(subject, length)

    cdef bint may_export(self, bytes subject, bytes queue) except -1:
        return self.rules is None or self.rules.allows_subscribe(subject, queue)

    def set_trace(self, bint trace) -> None:
        """Switch the logging of protocol operations and payloads on or off."""
        self.trace = trace

    def settings_changed(self) -> None:
        """Adopt the times of the shared settings, after a reload changed them."""
        self.ping_due_ns = min(self.ping_due_ns, monotonic_ns() + self.ping_interval())

    cdef int end(self) except -1:
        links, self.links = self.links, {}
        self.dedicated = None
        self.mention(None)
        try:
            self.closed()
        finally:
            for link in links.values():
                (<RouteLink> link).close()
        return 0

    @property
    def num_subscriptions(self) -> int:
        """Subscriptions of the peer."""
        return sum([link.num_subscriptions for link in self.links.values()])

    @property
    def account_links(self) -> list:
        """The links of all accounts that this connection carries or that the peer mentioned."""
        return list(self.links.values())

    # ---- operations

    cdef int on_publish(self, Message* message) except -1:
        cdef RouteLink link = self.protocol.link
        self.in_msgs += 1
        self.in_bytes += message.data_len
        count_routed_in(self.reactor.counters, message.data_len)
        if self.trace:
            self.trace_payload("<<-", message.data[:message.data_len], message.header_len)
        if link is None:
            return 0
        message.origin = &self.origin
        return self.publish(link, message)

    cdef int publish(self, RouteLink link, Message* message) except -1:
        """Deliver a message of the peer in the link's account."""
        cdef MatchResult result = link.memo
        cdef const char* mark = NULL if message.reply == NULL else renaming_mark(message)
        cdef bytes _line
        cdef Message renamed
        link.in_msgs += 1
        link.in_bytes += message.data_len
        count_routed_in(link.account_counters, message.data_len)
        self.origin.account = <PyObject*> link.account
        if not is_match_of(result, message):
            if not self.may_import(message.subject, message.subject_len):
                return 0
            result = link.sublist.lookup(message.subject, message.subject_len)
            link.memo = result if result.live else None
        if mark != NULL:
            _line = rename(message, mark, &renamed)
            message = &renamed
        if message.reply != NULL and rarely(is_measured(message.reply, message.reply_len)):
            self.request_measured(link.account, message.reply[:message.reply_len])
        if message.header_len >= ASKING_BLOCK_BYTES and rarely(
            may_be_traced(message.data, message.header_len, link.account.msg_trace is not None)
        ):
            return self.publish_traced(link, result, message)
        return self.pass_on(result, message)

    cdef int pass_on(self, MatchResult result, Message* message) except -1:
        """Deliver a message of the peer to the subscriptions of this server."""
        cdef int64_t delivered = distribute_routed(
            result, message, self.reactor, self.protocol.queues, self.protocol.queues_len
        )
        self.reactor.batch_bytes += delivered * message.data_len
        self.reactor.congested = None       # a route waits for nobody: others wait behind it
        return 0

    cdef int publish_traced(self, RouteLink link, MatchResult result, Message* message) except -1:
        """Deliver a message whose headers may request a trace, as `begin_trace` decides."""
        cdef object decision = self.begin_trace(
            link.account, message.subject[:message.subject_len],
            message.data[:message.header_len], message.data_len,
        )
        cdef TracedMessage traced
        cdef Message changed
        cdef object _kept
        if decision is None:
            return self.pass_on(result, message)
        if decision.is_dropped:
            return 0
        if decision.trace is None:
            _kept = with_headers(message, decision.headers, &changed)
            return self.pass_on(result, &changed)
        traced = TracedMessage.__new__(TracedMessage)
        traced.message = message
        traced.trace = decision.trace
        distribute_traced_routed(
            result, traced, self.reactor, self.protocol.queues, self.protocol.queues_len
        )
        self.reactor.congested = None
        decision.trace.send()
        return 0

    cdef int on_ping(self) except -1:
        return self.send_pong()

    cdef int on_pong(self) except -1:
        OpSession.on_pong(self)
        self.pong_received()
        return 0

    cdef int on_error(self, const char* text, Py_ssize_t size) except -1:
        self.error_received(text_of(text[:size]).strip(" '"))
        return 0

    cdef int on_violation(self, Violation violation, const char* at, Py_ssize_t size) except -1:
        cdef str shown = text_of(at[:min(size, LOGGED_BYTES)])
        self.error(f"{VIOLATION_NAMES[violation]}: {shown!r}")
        self.close_with_error(ErrorText.UNKNOWN_PROTOCOL_OPERATION, ClosedReason.PARSE_ERROR)
        return 0

    # ---- deadlines

    def ping_interval(self) -> int:
        """Return the time between two pings in nanoseconds."""
        return min(self.settings.ping_interval_ns, ROUTE_PING_INTERVAL_NS_MAX)

    def ping(self) -> None:
        """Send PING; the answer measures the round-trip time."""
        self.send_ping(monotonic_ns())

    cdef int check_deadlines(self, int64_t now_ns) except -1:
        if self.authenticate_by_ns and now_ns >= self.authenticate_by_ns:
            self.authenticate_by_ns = 0
            self.authentication_timed_out()
        elif self.has_begun and now_ns >= self.ping_due_ns:
            self.ping_due_ns = now_ns + self.ping_interval()
            if self.pings_out >= self.settings.ping_max:
                self.reactor.counters.stale_routes += 1
            self.ping_or_close(now_ns)
        return 0


cdef inline void count_routed_in(TrafficStats counters, Py_ssize_t size) noexcept:
    """Count a message of a peer in the totals of the server or of an account."""
    counters.in_msgs += 1
    counters.in_bytes += size
    counters.in_route_msgs += 1
    counters.in_route_bytes += size


cdef const char* renaming_mark(const Message* message) noexcept:
    """Return the `@` in a consumer's reply subject; NULL: there is none.

    A stream delivers the message under the subject behind it. The names of the stream and of the
    consumer, which come before the eighth dot, may have an `@` too.
    """
    cdef const char* p = message.reply
    cdef const char* end = p + message.reply_len
    cdef int dots = 0
    if message.reply_len <= 8 or memcmp(p, PyBytes_AS_STRING(STREAM_ACK), 8) != 0:
        return NULL
    while p < end - 1:
        if p[0] == c".":
            dots += 1
        elif p[0] == c"@" and dots >= REPLY_DOTS:
            return p
        p += 1
    return NULL


cdef bytes rename(const Message* message, const char* mark, Message* renamed):
    """Set `renamed` to the message as its recipients see it; return what owns its line."""
    cdef Py_ssize_t reply_len = mark - message.reply
    cdef bytes line = message.reply[:reply_len] + (
        message.line[message.reply_len:message.line_len]
    )
    renamed[0] = message[0]
    renamed.subject = mark + 1
    renamed.subject_len = message.reply_len - reply_len - 1
    renamed.line = PyBytes_AS_STRING(line)
    renamed.line_len = PyBytes_GET_SIZE(line)
    renamed.reply = renamed.line
    renamed.reply_len = reply_len
    return line


no_route = RouteSession.__new__(RouteSession)
