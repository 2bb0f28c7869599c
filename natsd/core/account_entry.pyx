"""Where messages of other accounts enter an account, and where replies to their requests leave it.

    requestor in A ─ PUB svc inbox ─▶ ServiceImportSink ─▶ svc, reply _R_.k3Xw9a.<key>   in B
    requestor in A ◀─ PUB inbox ──── AccountEntry of B ◀─ PUB _R_.k3Xw9a.<key> ──── responder in B

Promise
- A responder never learns the requestor's reply subject. It answers on a subject with a random
  number of 64 bits, which only it was told; whoever guesses has no second chance to see an answer.
- A reply subject ends with its only response, with an empty response, when nobody listens in the
  requestor's account any more, or when the threshold of the export has passed without a response.
- An account awaits at most AWAITED_MAX replies of other accounts. For one more, its own oldest one
  is given up: an account that asks without end takes nothing from others.
- Replies to an acknowledgement subject (`$JS.ACK.`) are not changed: consumers rely on them.

Source: nats-server's `addRespServiceImport`, `processServiceImportResponse` and
`checkForReverseEntry` (server/accounts.go).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp, memcpy

from natsd.core.decimal cimport put_decimal
from natsd.core.network cimport (
    Reactor, TracedMessage, distribute, monotonic_ns, with_headers,
)
from natsd.core.routing cimport (
    Hop, Message, Origin, Sink, Subscription, fanout_of, subject_is_literal, subject_matches,
)

import os

cdef enum:
    AWAITED_MAX = 1 << 16
    EXPIRED_PER_TURN = 1000
    RANDOM_BYTES = 4096
    KEY_LETTERS = 11            # of 62 kinds: more than 64 bits
    PREFIX_LETTERS = 6
    SCANNED_MAX = 10_000        # pending replies that the end of a wildcard subscription checks
    LINE_BYTES = 128            # room for the line of a response, with a reply of our own

cdef const char* LETTERS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

REQUEST_TIMEOUT = 408           # the requestor stopped listening
SERVICE_UNAVAILABLE = 503
SERVICE_TIMEOUT = 504


cdef bint was_here(const Hop* hop, ExportedService export) noexcept:
    while hop != NULL:
        if hop.export == <PyObject*> export:
            return True
        hop = hop.before
    return False


cdef bint is_consumer_ack(const char* reply, Py_ssize_t length) noexcept:
    """Return whether a reply is the acknowledgement subject of a consumer."""
    return length > 8 and memcmp(reply, b"$JS.ACK.", 8) == 0


cdef bytes letters_of(uint64_t number, int count):
    """Return a number as letters, the lowest digit first."""
    cdef char text[KEY_LETTERS]
    cdef int at
    for at in range(count):
        text[at] = LETTERS[number % 62]
        number //= 62
    return text[:count]


cdef class ExportedService:
    """An exported service, as its importers use it; a change applies to all of them at once."""

    def __init__(
        self, str subject not None, *, response_type=SINGLETON, int64_t threshold_ns=120 * 10**9,
        latency=None, bint allows_trace=False,
    ):
        self.subject = subject
        self.response_type = response_type
        self.threshold_ns = threshold_ns
        self.latency = latency
        self.allows_trace = allows_trace


cdef class PendingReply:
    """A request of another account that may still be answered."""


cdef class AccountEntry(Sink):
    """The entry of one account, and the sink of its subscription to `_R_.<prefix>.>`."""

    def __init__(self, Reactor reactor not None, account not None):
        self.reactor = reactor
        self.account = account
        self.name = account.name.encode()
        self.sublist = account.sublist
        self.mappings = account.mappings
        self.pending = {}
        self.queues = {}
        self.awaited = {}
        self.random_bytes = b""

    # ---- replies that are expected here

    cdef PendingReply expect(
        self, const char* reply, Py_ssize_t length, ExportedService export, AccountEntry requestor,
        object measure=None,
    ):
        """Return a new reply subject here; its responses go to `reply` in `requestor`.

        With `measure` (LatencyMeasure) the request is measured.
        """
        cdef PendingReply pending = PendingReply.__new__(PendingReply)
        if self.prefix is None:
            self.begin_replies()
        pending.subject = self.new_reply()
        if measure is not None:
            pending.subject += <bytes> measure.reply_suffix
        pending.measure = measure
        pending.reply = reply[:length]
        pending.requestor = requestor
        pending.responder = self
        pending.export = export
        self.keep(pending)
        requestor.await_reply(pending)
        if requestor.awaited_replies > AWAITED_MAX:
            requestor.oldest.responder.forget(requestor.oldest, SERVICE_TIMEOUT)
        return pending

    cdef int begin_replies(self) except -1:
        """Subscribe to the replies of this account."""
        self.prefix = b"_R_." + letters_of(self.random(), PREFIX_LETTERS) + b"."
        self.subscription = Subscription(self.prefix + b">", sid=b"0", sink=self)
        self.sublist.insert(self.subscription)
        return 0

    cdef bytes new_reply(self):
        """Return a reply subject that nobody can guess."""
        if self.prefix is None:
            self.begin_replies()
        return self.prefix + letters_of(self.random(), KEY_LETTERS)

    cdef uint64_t random(self) except? 0:
        """Return a random number of the system."""
        cdef uint64_t number
        if self.random_at + 8 > PyBytes_GET_SIZE(self.random_bytes):
            self.random_bytes = os.urandom(RANDOM_BYTES)
            self.random_at = 0
        memcpy(&number, PyBytes_AS_STRING(self.random_bytes) + self.random_at, 8)
        self.random_at += 8
        return number

    cdef int keep(self, PendingReply pending) except -1:
        """List a reply with its deadline, behind all others of the same threshold."""
        cdef dict queue = self.queues.get(pending.export.threshold_ns)
        if queue is None:
            queue = self.queues[pending.export.threshold_ns] = {}
        pending.queue = queue
        pending.due_ns = monotonic_ns() + pending.export.threshold_ns
        self.pending[pending.subject] = pending
        queue[pending.subject] = pending
        if self.timer is None or pending.due_ns < self.timer_ns:
            self.set_timer()
        return 0

    cdef int renew(self, PendingReply pending) except -1:
        """Give a reply that was used the whole threshold again."""
        pending.queue.pop(pending.subject, None)
        self.keep(pending)
        pending.requestor.unlink(pending)
        pending.requestor.link(pending)
        return 0

    cdef int forget(self, PendingReply pending, int status) except -1:
        """End a reply; if it was to be measured and not answered, the metric says `status`."""
        if self.pending.pop(pending.subject, None) is None:
            return 0
        pending.queue.pop(pending.subject, None)
        pending.requestor.unawait(pending)
        if pending.measure is not None and status:
            pending.measure.failed(status)
        pending.measure = None
        return 0

    cdef int set_timer(self) except -1:
        """Call `expire` when the oldest reply is due."""
        cdef int64_t due_ns = 0
        cdef PendingReply oldest
        for queue in self.queues.values():
            if queue:
                oldest = next(iter(queue.values()))
                due_ns = oldest.due_ns if due_ns == 0 else min(due_ns, oldest.due_ns)
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None
        self.timer_ns = due_ns
        if due_ns:
            delay_s = max(due_ns - monotonic_ns(), 0) / 1e9
            self.timer = self.reactor.loop.call_later(delay_s, self.expire)
        return 0

    def expire(self) -> None:
        """Give up the replies whose threshold has passed, EXPIRED_PER_TURN in a turn."""
        cdef PendingReply oldest
        cdef int64_t now_ns = monotonic_ns()
        cdef int expired = 0
        self.timer = None
        for queue in list(self.queues.values()):
            while queue and expired < EXPIRED_PER_TURN:
                oldest = next(iter(queue.values()))
                if oldest.due_ns > now_ns:
                    break
                self.forget(oldest, SERVICE_TIMEOUT)
                expired += 1
        self.set_timer()

    # ---- responses

    cdef int deliver(self, Subscription sub, Message* message) except -1:
        cdef PendingReply pending = self.pending.get(message.subject[:message.subject_len])
        if sub.closed or pending is None:
            return 0
        if not self.take(pending, message):
            return 0
        sub.delivered += 1
        return 1

    def relay(self, bytes reply not None) -> MatchResult:
        """Return the recipients of a pending reply for messages that keep their own subjects.

        A consumer's messages do: they are found by the reply subject of a pull request, and say on
        which subject they were stored. There are no recipients if nobody listens any more.
        """
        return self.recipients(reply, True)

    cdef MatchResult recipients(self, bytes subject, bint is_relayed):
        """Return the recipients of a subject in this account; `is_relayed`: as `relay` does."""
        cdef PendingReply pending
        cdef ReplyRelay relay
        cdef SubList alone
        cdef MatchResult beyond
        if not is_relayed or not subject.startswith(b"_R_."):
            return self.sublist.lookup(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        alone = SubList(cache=False)
        pending = self.pending.get(subject)
        if pending is not None:
            beyond = pending.requestor.recipients(
                pending.requestor.mapped(
                    PyBytes_AS_STRING(pending.reply), PyBytes_GET_SIZE(pending.reply)
                ) or pending.reply,
                True,
            )
            if fanout_of(beyond):
                relay = ReplyRelay.__new__(ReplyRelay)
                relay.entry = self
                relay.pending = pending
                alone.insert(Subscription(subject.decode(), sid=b"0", sink=relay))
        return alone.lookup(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))

    cdef int take(self, PendingReply pending, Message* message) except -1:
        """Deliver a response to a pending reply; return whether someone took it."""
        cdef int64_t delivered
        if was_here(message.origin.hop, pending.export):
            return 0
        if pending.measure is not None:
            pending.measure.answered(
                None if message.origin.session == NULL else <object> message.origin.session,
                pending.subject,
            )
            pending.measure = None
        delivered = self.respond(pending, message)
        if (
            delivered == 0 or pending.export.response_type == SINGLETON or message.data_len == 0
        ):
            self.forget(pending, 0)
        elif pending.subject in self.pending:
            self.renew(pending)
        return delivered > 0

    cdef int64_t respond(self, PendingReply pending, Message* message) except -1:
        """Deliver a response in the requestor's account; return the number of recipients."""
        cdef AccountEntry requestor = pending.requestor
        cdef Message response = message[0]
        cdef Origin origin = message.origin[0]
        cdef Hop hop
        cdef PendingReply further = None
        cdef char line[LINE_BYTES]
        cdef char* end = line
        cdef bytes subject = requestor.mapped(
            PyBytes_AS_STRING(pending.reply), PyBytes_GET_SIZE(pending.reply)
        )
        cdef int64_t delivered
        cdef bint is_relayed = message.subject_len != PyBytes_GET_SIZE(pending.subject) or (
            memcmp(message.subject, PyBytes_AS_STRING(pending.subject), message.subject_len) != 0
        )
        hop.export = <PyObject*> pending.export
        hop.account = <PyObject*> self.account
        hop.is_shared = False
        hop.before = message.origin.hop
        origin.account = <PyObject*> requestor.account
        origin.hop = &hop
        response.origin = &origin
        if subject is None:
            subject = pending.reply
        if not is_relayed:
            response.subject = PyBytes_AS_STRING(subject)
            response.subject_len = PyBytes_GET_SIZE(subject)
        if message.reply != NULL and not is_consumer_ack(message.reply, message.reply_len):
            further = requestor.expect(message.reply, message.reply_len, pending.export, self)
            response.reply = line
            response.reply_len = PyBytes_GET_SIZE(further.subject)
            memcpy(end, PyBytes_AS_STRING(further.subject), response.reply_len)
            end[response.reply_len] = c" "
            end += response.reply_len + 1
            if message.header_len:
                end = put_decimal(end, message.header_len)
                end[0] = c" "
                end += 1
            end = put_decimal(end, message.data_len)
            memcpy(end, b"\r\n", 2)
            response.line = line
            response.line_len = end + 2 - line
        delivered = distribute(
            requestor.recipients(subject, is_relayed), &response,
            self.reactor, silent_publisher(message.origin),
        )
        if further is not None and delivered == 0:
            requestor.forget(further, 0)
        return delivered

    def deliver_traced(self, Subscription sub not None, TracedMessage traced not None) -> bool:
        """Deliver a traced response, and record that it passes into the requestor's account.

        What happens there is not recorded, because it is the requestor's business. With trace-only
        nothing is delivered.
        """
        cdef bytes name = traced.message.subject[:traced.message.subject_len]
        cdef PendingReply pending = self.pending.get(name)
        cdef Message changed
        cdef int taken
        if pending is None or sub.closed:
            return False
        traced.trace.service_entered(pending.requestor.account.name, name, pending.reply)
        if traced.trace.is_only:
            return False
        kept = with_headers(
            traced.message,
            traced.trace.untraced(traced.message.data[:traced.message.header_len]), &changed,
        )
        taken = self.deliver(sub, &changed)
        del kept
        return taken > 0

    cdef bytes mapped(self, const char* subject, Py_ssize_t length):
        """Return what this account's mappings make of a subject; None: there is no change."""
        return None if self.mappings is None else self.mappings.map(subject, length)

    # ---- replies that requestors of this account await

    cdef int await_reply(self, PendingReply pending) except -1:
        """Note that a response to `pending.reply` is awaited in this account."""
        self.link(pending)
        known = self.awaited.get(pending.reply)
        if known is None:
            self.awaited[pending.reply] = pending
        elif isinstance(known, dict):
            known[pending.subject] = pending
        else:
            self.awaited[pending.reply] = {
                (<PendingReply> known).subject: known, pending.subject: pending
            }
        return 0

    cdef int unawait(self, PendingReply pending) except -1:
        """Undo `await_reply`."""
        self.unlink(pending)
        known = self.awaited.get(pending.reply)
        if known is pending:
            del self.awaited[pending.reply]
        elif isinstance(known, dict):
            known.pop(pending.subject, None)
            if not known:
                del self.awaited[pending.reply]
        return 0

    cdef int link(self, PendingReply pending) except -1:
        """List an awaited reply as the newest one."""
        pending.older = self.newest
        if self.newest is None:
            self.oldest = pending
        else:
            self.newest.newer = pending
        self.newest = pending
        self.awaited_replies += 1
        return 0

    cdef int unlink(self, PendingReply pending) except -1:
        """Undo `link`."""
        if pending.older is None:
            self.oldest = pending.newer
        else:
            pending.older.newer = pending.newer
        if pending.newer is None:
            self.newest = pending.older
        else:
            pending.newer.older = pending.older
        pending.older = pending.newer = None
        self.awaited_replies -= 1
        return 0

    def unsubscribed(self, Subscription sub not None) -> None:
        """Give up the replies that nobody awaits any more after this subscription ended.

        When a wildcard subscription ends while there are more than SCANNED_MAX, their thresholds do
        that.
        """
        cdef bytes reply
        if not self.awaited:
            return
        if subject_is_literal(sub.text, sub.subject_len):
            self.lost(sub.text[:sub.subject_len])
        elif len(self.awaited) <= SCANNED_MAX:
            for reply in list(self.awaited):
                if subject_matches(reply, len(reply), sub.text, sub.subject_len):
                    self.lost(reply)

    def lost(self, bytes reply not None) -> None:
        """Give up the responses to this subject, unless someone still listens on it."""
        cdef PendingReply pending
        known = self.awaited.get(reply)
        if known is None or self.sublist.interested(reply, len(reply)):
            return
        for each in list(known.values()) if isinstance(known, dict) else [known]:
            pending = each
            pending.responder.forget(pending, REQUEST_TIMEOUT)

    @property
    def pending_count(self) -> int:
        """Replies that responders of this account may still use."""
        return len(self.pending)

    @property
    def awaited_count(self) -> int:
        """Reply subjects of this account on which responses of other accounts are awaited."""
        return len(self.awaited)

    def close(self) -> None:
        """Give up all replies, those of responders here and those that requestors here await."""
        cdef PendingReply pending
        for each in list(self.pending.values()):
            self.forget(each, 0)
        for known in list(self.awaited.values()):
            for each in list(known.values()) if isinstance(known, dict) else [known]:
                pending = each
                pending.responder.forget(pending, 0)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.subscription is not None:
            self.sublist.remove(self.subscription)
            self.subscription.detach()
            self.subscription = None
            self.prefix = None


cdef class ReplyRelay(Sink):
    """The sink of one pending reply, for a consumer: its messages keep their own subjects."""

    cdef int deliver(self, Subscription sub, Message* message) except -1:
        if self.entry.pending.get(self.pending.subject) is not self.pending:
            return 0
        return self.entry.take(self.pending, message)
