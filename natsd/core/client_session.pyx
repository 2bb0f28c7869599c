"""The session of a client: its protocol operations, and the delivery of messages to the client.

    bytes ─parse─> on_publish ─match─> distribute ─> Subscription.sink.deliver ─> outbound buffer
                   (publisher)                        (recipient)

Promise
- The path of a message makes no Python object. A publisher remembers its last match result. A
  delivery is three copies into the recipient's outbound chunk: the subject, the sid, and "reply
  size CRLF payload CRLF" as the publisher sent it.
- Permissions are asked where a subject is matched anew, and for deliveries only if some of them may
  be denied (session_permissions.pyx).
- Rare features (verbose, pedantic, tracing, no header support, auto-unsubscribe) are behind one
  flag per direction (`slow_publish_path`, `slow_delivery_path`). A client without them pays one
  test of the flag.
- A publisher whose message went to a congested connection waits 2 ms, at most 10 ms per read. If
  the congested recipient is another kind of endpoint, that endpoint sets the wait (`stall_for`).
- Messages delivered to a client are added to the totals when the client is flushed, not one by one.
- Deadlines (authentication, pings, blocked writes) are checked in `sweep` only.

endpoint.pyx reads, sends and closes. The subclass natsd/clients/client.py handles CONNECT and the
log.
Source: nats-server's `processInboundClientMsg`, `deliverMsg` and `stalledWait` (server/client.go).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.string cimport memcmp, memcpy

from natsd.core.reserved cimport may_be_reserved
from natsd.core.routing cimport (
    CLIENT_KIND, MatchResult, Message, SubList, Subscription, detach, new_subscription,
    sid_of, subject_is_valid_literal,
)

from natsd.core.quoting import quoted
from natsd.core.reasons import ClosedReason, ErrorText
from natsd.core.routing import InvalidSubject

cdef enum:
    HEAD_BYTES = 8                  # "HMSG ", two spaces, and one to spare
    FIRST_PING_NS = 2_000_000_000   # delay of the first ping after CONNECT, without its jitter
    REMOVED_PER_TURN = 2048         # subscriptions of a closed connection removed per loop turn
    TRACED_PER_READ = 8             # then the read pauses: a trace costs as much as 100 messages

cdef int64_t RTT_INTERVAL_NS = 3_600_000_000_000


cdef class ClientSession(OpSession):
    """What a client's connection means; it attaches itself and a parser to the endpoint."""

    def __cinit__(self):
        self.verbose = True
        self.pedantic = True
        self.echo = True
        self.slow_publish_path = True
        self.slow_delivery_path = True

    def __init__(self, Endpoint endpoint not None, unsigned long long cid):
        OpSession.__init__(self, endpoint, CLIENT_KIND)
        self.cid = cid
        self.protocol = ClientProtocol(self)
        self.protocol.max_control_line_bytes = self.settings.max_control_line
        self.own_subscriptions_max = self.own_payload_max = INT64_MAX
        self.apply_limits()
        self.protocol.headers = False
        self.ping_due_ns = self.start_ns + self.settings.ping_interval_ns
        endpoint.attach(self.protocol, self)

    def settings_changed(self) -> None:
        """Adopt the limits and times of the shared settings, after a reload changed them."""
        self.protocol.max_control_line_bytes = self.settings.max_control_line
        self.apply_limits()
        self.ping_due_ns = min(self.ping_due_ns, monotonic_ns() + self.settings.ping_interval_ns)

    def set_own_limits(self, int64_t subscriptions, int64_t payload) -> None:
        """Set limits of this session, which come on top of the shared ones; below 0: none."""
        self.own_subscriptions_max = INT64_MAX if subscriptions < 0 else subscriptions
        self.own_payload_max = INT64_MAX if payload < 0 else payload
        self.apply_limits()

    cdef int apply_limits(self) except -1:
        """Compute the limits that hold: the lower one of the session's and the shared one."""
        self.subscriptions_max = self.own_subscriptions_max
        if 0 < self.settings.max_subscriptions < self.subscriptions_max:
            self.subscriptions_max = self.settings.max_subscriptions
        self.protocol.max_payload_bytes = min(self.own_payload_max, self.settings.max_payload)
        return 0

    @property
    def payload_max(self) -> int:
        """Bytes in a message that the client may publish, headers included."""
        return self.protocol.max_payload_bytes

    # ---- hooks that the subclass overrides

    def connect_omitted(self) -> bool:
        """Return whether a client whose first operation is not CONNECT is accepted, and do it."""
        return False

    def first_pong(self) -> None:
        """Handle the client's first PING after CONNECT, once the PONG is queued."""

    def authentication_expired(self) -> None:
        """Handle that the time is reached which `expire_at` set."""

    def begin_trace(self, bytes subject, bytes headers, int64_t size):
        """Return a Decision (natsd/clients/tracing.py), or None: publish the message unchanged."""

    def trace_oversized(self, bytes line, bytes headers) -> None:
        """Trace a message that exceeds `max_payload`; of its headers only a part may be here."""

    # ---- life

    def bind_account(self, account, SubList sublist, TrafficStats counters) -> None:
        """Move to an account with its `sublist` and `counters`; old subscriptions end."""
        self.account = account
        self.count_delivered()
        if self.sublist is not sublist:
            self.drop_subscriptions()
        self.sublist = sublist
        self.account_counters = counters
        self.memo = None
        self.account_changed()

    def account_changed(self) -> None:
        """Use the account's subject mappings and trace settings, which may have changed."""
        self.mappings = getattr(self.current_account, "mappings", None)
        self.counts_parents = getattr(self.current_account, "msg_trace", None) is not None
        self.update_care()

    def negotiate(
        self, bint verbose, bint pedantic, bint echo, bint headers, bint no_responders
    ) -> None:
        """Apply the protocol options of a CONNECT."""
        self.verbose = verbose
        self.pedantic = pedantic
        self.echo = echo
        self.headers = self.protocol.headers = headers
        self.no_responders = no_responders
        self.update_care()

    def update_care(self) -> None:
        """Compute `slow_publish_path` and `slow_delivery_path`."""
        cdef SessionPermissions may = self.permissions
        self.slow_publish_path = (
            self.verbose or self.pedantic or self.trace or self.mappings is not None
        )
        self.slow_delivery_path = (
            self.trace or not self.headers
            or may is not None and (may.filters or may.tracks_replies)
        )

    def set_trace(self, bint trace) -> None:
        """Switch the logging of protocol operations and payloads on or off."""
        self.trace = trace
        self.update_care()

    def await_connect(self, int64_t timeout_ns) -> None:
        """Allow only CONNECT until `connected`, at most `timeout_ns` after the connection began."""
        self.protocol.awaiting_connect = True
        self.endpoint.read_most = self.settings.max_control_line    # a stranger takes little memory
        self.authenticate_by_ns = self.start_ns + timeout_ns

    def await_opening(self, int64_t timeout_ns) -> None:
        """Have `authentication_timed_out` called after `timeout_ns`, unless the opening ends first.

        The opening is what comes before the protocol: a PROXY header, a TLS handshake.
        """
        self.endpoint.read_most = self.settings.max_control_line    # a stranger takes little memory
        self.authenticate_by_ns = monotonic_ns() + timeout_ns

    def opening_over(self) -> None:
        """Record that the protocol begins, with no deadline."""
        self.endpoint.read_most = PY_SSIZE_T_MAX
        self.authenticate_by_ns = 0

    def suspend_reading(self, int64_t timeout_ns) -> None:
        """Read nothing until `Endpoint.resume_reading`: the verdict over a CONNECT is awaited.

        Unless a deadline runs already, `authentication_timed_out` is called after `timeout_ns`.
        """
        if self.authenticate_by_ns == 0:
            self.authenticate_by_ns = monotonic_ns() + timeout_ns
        self.endpoint.is_deciding = True
        self.endpoint.pause_reading()

    def set_permissions(self, PermissionRules rules) -> None:
        """Apply these rules from now on, to later subscriptions; None: everything is allowed."""
        self.permissions = None if rules is None else SessionPermissions(rules)
        self.memo = None
        self.update_care()

    @property
    def permission_rules(self):
        """PermissionRules of this session; None: everything is allowed."""
        return None if self.permissions is None else self.permissions.rules

    def expire_at(self, int64_t expires_ns) -> None:
        """Call `authentication_expired` at a time of the monotonic clock; 0: never."""
        self.expires_ns = expires_ns

    def drop_forbidden_subscriptions(self) -> None:
        """End the subscriptions that the permissions do not allow any more, and tell the client."""
        if self.permissions is not None:
            drop_forbidden(self)
            self.update_care()

    def connected(self) -> None:
        """Record that a CONNECT was authenticated: all operations are allowed, pings begin."""
        cdef int64_t now = monotonic_ns()
        self.protocol.awaiting_connect = False
        self.endpoint.read_most = PY_SSIZE_T_MAX
        self.authenticate_by_ns = 0
        self.rtt_ns = max(1, now - self.start_ns)
        self.connect_seen = True
        self.expect_first_ping(now)

    cdef int expect_first_ping(self, int64_t now_ns) except -1:
        """Schedule the first ping: after 2 s or a shorter ping interval, plus up to 20 % jitter."""
        cdef int64_t delay = min(<int64_t>FIRST_PING_NS, self.settings.ping_interval_ns)
        cdef uint32_t jitter = self.reactor.random(<uint32_t>max(1, delay // 5_000))
        self.ping_due_ns = now_ns + delay + <int64_t>jitter * 1000
        return 0

    cdef int read_over(self) except -1:
        """End a read: add its messages and bytes to the totals of client, server and account."""
        if self.read_msgs:
            self.in_msgs += self.read_msgs
            self.in_bytes += self.read_bytes
            self.count_in(self.reactor.counters)
            if self.account_counters is not None:
                self.count_in(self.account_counters)
            self.read_msgs = self.read_bytes = 0
            self.traces = 0
        return 0

    cdef void count_in(self, TrafficStats counters) noexcept:
        counters.in_msgs += self.read_msgs
        counters.in_bytes += self.read_bytes

    cdef int before_flush(self) except -1:
        if self.counted_msgs != self.out_msgs:
            self.count_delivered()
        return 0

    cdef int count_delivered(self) except -1:
        """Add the messages delivered since the last call to the totals of server and account."""
        cdef TrafficStats counters = self.reactor.counters
        cdef int64_t msgs = self.out_msgs - self.counted_msgs
        cdef int64_t size = self.out_bytes - self.counted_bytes
        counters.out_msgs += msgs
        counters.out_bytes += size
        counters = self.account_counters
        if counters is not None:
            counters.out_msgs += msgs
            counters.out_bytes += size
        self.counted_msgs = self.out_msgs
        self.counted_bytes = self.out_bytes
        return 0

    def ended(self) -> None:
        """Handle the client's end of stream: no further message is delivered to the client."""
        self.drop_subscriptions()

    cdef int end(self) except -1:
        self.count_delivered()
        self.memo = None
        if self.permissions is not None:
            self.permissions.published = ResultSet()
        try:
            self.closed()
        finally:
            self.drop_subscriptions()
        return 0

    # ---- operations

    cdef int on_publish(self, Message* message) except -1:
        """Check, match and distribute a published message."""
        cdef MatchResult result
        cdef int64_t delivered
        if (
            message.header_len >= ASKING_BLOCK_BYTES
            and rarely(may_be_traced(message.data, message.header_len, self.counts_parents))
            and not self.is_decided
        ):
            return self.publish_traced(message)
        result = self.memo
        message.origin = &self.origin
        self.read_msgs += 1
        self.read_bytes += message.data_len
        if self.slow_publish_path:
            result = self.admit(message)
            if result is None:
                return 0
        else:
            if (
                message.reply != NULL and may_be_reserved(message.reply)
                and refuse_reserved(self, message)
            ):
                return 0
            if not is_match_of(result, message):
                result = self.resolve(message)
                if result is None:
                    return 0
        if rarely(self.traced is not None):
            delivered = distribute_traced(
                result, self.traced, self.reactor, None if self.echo else self
            )
        else:
            delivered = distribute(result, message, self.reactor, None if self.echo else self)
        if delivered:
            if self.traced is None or not self.traced.trace.is_only:
                self.reactor.batch_bytes += delivered * message.data_len
            if self.reactor.congested is not None:
                self.wait_for_recipient()
        elif message.reply != NULL and self.no_responders:
            answer_no_responders(self, message)
        return 0

    cdef int publish_traced(self, Message* message) except -1:
        """Publish a message whose headers may request a trace, as `begin_trace` decides."""
        cdef object decision = self.begin_trace(
            message.subject[:message.subject_len], message.data[:message.header_len],
            message.data_len,
        )
        cdef Message changed
        cdef object _kept
        message.origin = &self.origin
        changed = message[0]
        if decision is not None and decision.is_dropped:
            self.read_msgs += 1
            self.read_bytes += message.data_len
        else:
            if decision is not None and decision.trace is not None:
                self.traced = TracedMessage()
                self.traced.message = &changed
                self.traced.trace = decision.trace
            elif decision is not None:
                _kept = with_headers(message, decision.headers, &changed)
            self.is_decided = True
            try:
                self.on_publish(&changed)
            finally:
                self.is_decided = False
                self.traced = None
            if decision is not None and decision.trace is not None:
                decision.trace.send()
        self.traces += 1
        if (
            self.traces >= TRACED_PER_READ and self.endpoint.reason is None
            and not self.endpoint.is_stalled
        ):
            self.endpoint.pause_reading()   # the rest of this read is parsed in a later turn
            self.reactor.stall(self.endpoint, monotonic_ns())
        return 0

    cdef MatchResult resolve(self, Message* message):
        """Match the message's subject and remember the result; None: publishing is refused."""
        cdef MatchResult result
        if may_be_reserved(message.subject) and refuse_reserved(self, message):
            return None
        if self.sublist is None:
            return None
        result = self.sublist.lookup(message.subject, message.subject_len)
        self.memo = result if result.live else None
        if (
            self.permissions is not None
            and not holds(<PyObject*> self.permissions.published, <PyObject*> result)
            and message.subject_len and not may_publish(self, message, result)
        ):
            return None
        return result

    cdef MatchResult admit(self, Message* message):
        """Log, check, match, and send +OK for a publish; None: the message is dropped."""
        cdef MatchResult result = self.memo
        cdef bytes line
        if self.trace:
            line = message.line[:message.line_len - 2]
            self.trace_operation(
                "<<-", (b"HPUB " if message.header_len else b"PUB ")
                + message.subject[:message.subject_len] + b" " + line
            )
        if self.mappings is not None:
            map_subject(self, message)
        if self.trace:
            self.trace_payload("<<-", message.data[:message.data_len], message.header_len)
        if self.pedantic and not subject_is_valid_literal(
            message.subject, message.subject_len
        ):
            self.send_error(ErrorText.INVALID_PUBLISH_SUBJECT)
        if not is_match_of(result, message):
            result = self.resolve(message)
            if result is None:
                return None
        if refuse_reserved(self, message):
            return None
        if self.verbose:
            self.send_ok()
        return result

    cdef int on_subscribe(self, Args* args) except -1:
        """Add a subscription; one with a known sid is ignored, as in nats-server."""
        cdef bytes subject = args.at[0][:args.size[0]]
        cdef bytes queue = args.at[1][:args.size[1]] if args.count == 3 else None
        cdef bytes sid = args.at[args.count - 1][:args.size[args.count - 1]]
        if self.trace:
            self.trace_operation("<<-", b"SUB " + b" ".join(filter(None, (subject, queue, sid))))
        if not self.may_subscribe(subject, queue, sid):
            return 0
        if self.subscriptions is None:
            self.subscriptions = {}
        if sid not in self.subscriptions:
            sub = new_subscription(
                args.at[0], args.size[0], args.at[1], args.size[1] if args.count == 3 else 0,
                args.at[args.count - 1], args.size[args.count - 1], self,
            )
            try:
                self.sublist.insert(sub)
            except InvalidSubject:
                self.send_error(ErrorText.INVALID_SUBJECT)
                return 0
            self.subscriptions[sid] = sub
        if self.verbose:
            self.send_ok()
        return 0

    def may_subscribe(self, bytes subject, bytes queue, bytes sid) -> bool:
        """Return whether a subscription is allowed; a refusal is sent to the client and logged."""
        if queue == b"_sys_":
            refuse_subscription(self, subject, queue, sid)
            return False
        if self.settings.max_sub_tokens and subject.count(b".") >= self.settings.max_sub_tokens:
            refuse_tokens(self, subject, sid)
            return False
        if self.permissions is not None:
            if not self.permissions.may_subscribe(subject, queue):
                refuse_subscription(self, subject, queue, sid)
                return False
            self.update_care()
        if self.num_subscriptions >= self.subscriptions_max:
            self.send_error(ErrorText.MAXIMUM_SUBSCRIPTIONS)
            self.error(ErrorText.MAXIMUM_SUBSCRIPTIONS)
            return False
        return self.sublist is not None

    cdef int on_unsubscribe(self, Args* args) except -1:
        cdef bytes sid = args.at[0][:args.size[0]]
        cdef Subscription sub
        cdef int64_t most = -1
        if self.trace:
            self.trace_operation(
                "<<-", b"UNSUB " + b" ".join([args.at[i][:args.size[i]] for i in range(args.count)])
            )
        if args.count == 2 and args.size[1] <= 9:
            digits = args.at[1][:args.size[1]]
            most = int(digits) if digits.isdigit() else -1
        sub = None if self.subscriptions is None else self.subscriptions.get(sid)
        if sub is not None:
            if most > sub.delivered:
                sub.max_delivered = most
                self.debug(
                    f"Deferring actual UNSUB({quoted(sub.subject)}): "
                    f"{most} max, {sub.delivered} received"
                )
            else:
                self.remove_subscription(sub)
        if self.verbose:
            self.send_ok()
        return 0

    cdef int on_ping(self) except -1:
        """Queue PONG; after the first one since CONNECT, call `first_pong`."""
        self.send_pong()
        if self.connect_seen and not self.first_pong_sent:
            self.first_pong_sent = True
            self.first_pong()
        return 0

    cdef bint on_connect_omitted(self) except -1:
        return self.connect_omitted()

    cdef int on_error(self, const char* text, Py_ssize_t size) except -1:
        self.error(f"Client Error {text_of(text[:size])}")
        self.endpoint.close(ClosedReason.PARSE_ERROR)
        return 0

    cdef int on_violation(self, Violation violation, const char* at, Py_ssize_t size) except -1:
        return close_for_violation(self, violation, at, size)

    # ---- delivering

    def deliver_traced(self, Subscription sub not None, TracedMessage traced not None) -> bool:
        """Deliver a message, unless trace-only, and record that; return whether it is taken."""
        cdef str error = ""
        cdef bint taken = True
        if sub.closed:
            return False
        if self.endpoint.reason is not None:
            error = CLIENT_CLOSED
            taken = False
        elif not self.may_receive(sub, <Message*> traced.message):
            error = SUBJECT_DENIED
            taken = False
        elif not traced.trace.is_only:
            if sub.max_delivered and sub.delivered >= sub.max_delivered:
                error = AUTO_UNSUBSCRIBED
            taken = self.deliver(sub, <Message*> traced.message)
            if not taken and not error:
                error = NOT_STALLED if self.endpoint.reason is None else CLIENT_CLOSED
        traced.trace.egress(self, sub, error)
        return taken

    cdef int deliver(self, Subscription sub, Message* message) except -1:
        if sub.closed:
            return 0
        if self.slow_delivery_path or sub.max_delivered:
            return self.deliver_carefully(sub, message)
        sub.delivered += 1
        return self.append_message(sub, message)

    cdef int deliver_carefully(self, Subscription sub, Message* message) except -1:
        """Deliver with the rare features: strip headers, log, apply the auto-unsubscribe limit."""
        cdef Message stripped
        cdef bytes line
        cdef int done
        if not self.may_receive(sub, message):
            return 0
        sub.delivered += 1
        if sub.max_delivered and sub.delivered > sub.max_delivered:
            self.remove_subscription(sub)
            return 0
        if message.header_len and not self.headers:
            stripped = message[0]
            stripped.data += message.header_len
            stripped.data_len -= message.header_len
            stripped.header_len = 0
            line = b"%d\r\n" % stripped.data_len
            if message.reply != NULL:
                line = message.reply[:message.reply_len] + b" " + line
            stripped.line = PyBytes_AS_STRING(line)
            stripped.line_len = PyBytes_GET_SIZE(line)
            message = &stripped
        done = self.append_message(sub, message)
        if (
            done and message.reply != NULL and self.permissions is not None
            and self.permissions.tracks_replies
        ):
            self.permissions.note_request(message.reply, message.reply_len)
        if done and self.trace:
            self.trace_operation(
                "->>", (b"HMSG " if message.header_len else b"MSG ")
                + message.subject[:message.subject_len] + b" " + sub.sid_bytes + b" "
                + message.line[:message.line_len - 2]
            )
            self.trace_payload("->>", message.data[:message.data_len], message.header_len)
        if sub.max_delivered and sub.delivered == sub.max_delivered:
            self.debug(
                f"Auto-unsubscribe limit of {sub.max_delivered} reached for sid {quoted(sub.sid)}"
            )
            self.remove_subscription(sub)
        return done

    cdef bint may_receive(self, Subscription sub, Message* message) except -1:
        """Return whether the client may receive a message of its subscription."""
        return (
            self.permissions is None or not self.permissions.filters
            or self.permissions.may_receive(
                message.subject[:message.subject_len], sub.queue_bytes
            )
        )

    cdef int append_message(self, Subscription sub, Message* message) except -1:
        """Append the message's frame to the outbound buffer; 0: the connection does not take it."""
        cdef Py_ssize_t head = HEAD_BYTES + message.subject_len + sub.sid_len + message.line_len
        cdef Py_ssize_t size = message.data_len + 2
        cdef bint by_reference = size > BY_REFERENCE_BYTES
        cdef Py_ssize_t need = head if by_reference else head + size
        cdef Outbound* out = &self.endpoint.out
        cdef char* to
        if out.limit - out.position < need or by_reference:
            if not self.endpoint.make_room(need, head + size):
                return 0
            if (
                self.endpoint.is_congested and self.settings.no_fast_producer_stall
                and message.origin.session != NULL      # the server itself is not stalled anyway
            ):
                self.reactor.congested = None
                return 0
        to = out.position
        if message.header_len:
            to[0] = c"H"
            to += 1
        memcpy(to, b"MSG ", 4)
        to = put_short(to + 4, message.subject, message.subject_len)
        to[0] = c" "
        to = put_short(to + 1, sid_of(sub), sub.sid_len)
        to[0] = c" "
        to += 1
        if by_reference:
            out.position = put_short(to, message.line, message.line_len)
            out_push(out, self.reactor.pool, message.data, size, message.owner)
            if message.owner == NULL:
                self.reactor.has_borrowed = True
        elif message.line + message.line_len == message.data:
            memcpy(to, message.line, message.line_len + size)
            out.position = to + message.line_len + size
        else:
            to = put_short(to, message.line, message.line_len)
            memcpy(to, message.data, size)
            out.position = to + size
        self.out_msgs += 1
        self.out_bytes += message.data_len
        if not self.endpoint.is_dirty:
            self.reactor.mark_dirty(self.endpoint)
        return 1

    cdef int wait_for_recipient(self) except -1:
        """Pause reading from this publisher: the recipient of its last message is congested."""
        cdef Recipient recipient = self.reactor.congested
        cdef int64_t wait_ns
        self.reactor.congested = None
        if self.endpoint.reason is not None or recipient is self.endpoint:
            return 0
        wait_ns = recipient.stall_for(&self.endpoint.stall_ns)
        if wait_ns == 0:
            return 0
        self.reactor.counters.stalled_clients += 1
        self.endpoint.pause_reading()
        self.reactor.stall(self.endpoint, monotonic_ns() + wait_ns)
        return 0

    # ---- protocol text

    def send_ok(self) -> None:
        """Queue `+OK`."""
        if self.trace:
            self.trace_operation("->>", b"OK")
        self.endpoint.append(b"+OK\r\n", 5)

    def slow_consumer(self, str why, bint is_known=False) -> None:
        """Count and log that this connection is a slow consumer; `why` is the exceeded limit."""
        self.reactor.counters.slow_consumers += 1
        if self.account_counters is not None:
            self.account_counters.slow_consumers += 1
        self.notice(f"Slow Consumer {'State' if is_known else 'Detected'}: {why}")

    # ---- deadlines

    cdef int check_deadlines(self, int64_t now_ns) except -1:
        if self.authenticate_by_ns and now_ns >= self.authenticate_by_ns:
            self.authenticate_by_ns = 0
            self.authentication_timed_out()
        elif self.expires_ns and now_ns >= self.expires_ns:
            self.expires_ns = 0
            self.authentication_expired()
        elif now_ns >= self.ping_due_ns:
            self.ping(now_ns)
        return 0

    cdef int ping(self, int64_t now_ns) except -1:
        """Send PING if the client was silent, or once per hour for the round-trip time."""
        cdef int64_t interval = self.settings.ping_interval_ns
        cdef bint measure = self.rtt_start_ns == 0 or now_ns - self.rtt_start_ns > RTT_INTERVAL_NS
        self.debug("Client Ping Timer")
        self.ping_due_ns = now_ns + interval
        if now_ns - self.endpoint.last_activity_ns < interval and not measure:
            return 0
        return self.ping_or_close(now_ns)

    # ---- subscriptions

    cdef int remove_subscription(self, Subscription sub) except -1:
        self.subscriptions.pop(sub.sid_bytes, None)
        self.sublist.remove(sub)
        detach(sub)
        if self.trace:
            self.trace_operation("<->", b"DELSUB " + sub.sid_bytes)
        return 0

    def drop_subscriptions(self) -> None:
        """End every subscription of this connection; the SubList lets go of them in later turns."""
        cdef Subscription sub
        cdef dict subscriptions = self.subscriptions
        self.subscriptions = None
        if not subscriptions:
            return
        if self.endpoint.reason is None:  # a closed connection takes no message anyway
            for sub in subscriptions.values():
                detach(sub)
        self.remove_from(self.sublist, subscriptions)

    def remove_from(self, SubList sublist, dict subscriptions) -> None:
        """Remove subscriptions from a SubList, REMOVED_PER_TURN in each turn of the loop."""
        cdef list batch = []
        while subscriptions and len(batch) < REMOVED_PER_TURN:
            batch.append(subscriptions.popitem()[1])
        sublist.remove_batch(batch)
        for sub in batch:
            detach(sub)
            if self.trace and self.endpoint.reason is not ClosedReason.SERVER_SHUTDOWN:
                self.trace_operation("<->", b"DELSUB " + sub.sid_bytes)
        if subscriptions:
            self.reactor.loop.call_soon(self.remove_from, sublist, subscriptions)

    def own_subscriptions(self) -> list:
        """Return the subscriptions of this connection, in the order of their SUBs."""
        return [] if self.subscriptions is None else list(self.subscriptions.values())

    @property
    def num_subscriptions(self) -> int:
        """Subscriptions of this connection."""
        return 0 if self.subscriptions is None else len(self.subscriptions)


cdef inline bint is_match_of(MatchResult result, Message* message) noexcept:
    """Return whether a match result, or None, is still the match of the message's subject."""
    return (
        result is not None and result.live and result.subject_len == message.subject_len
        and memcmp(result.subject, message.subject, message.subject_len) == 0
    )


cdef str text_of(bytes text):
    return text.decode("utf-8", "surrogateescape")


cdef bytes bytes_of(str text):
    return text.encode("utf-8", "surrogateescape")
