"""The permissions of one session: the rules of its user, and what they said about recent subjects.

    PUB ─▶ memo of the last match? ─▶ one of `published`? ─▶ the rules ─▶ a request's reply?
           (client_session.pyx)       result_set.pyx         two walks     ALLOWED_AS_RESPONSE

Promise
- A session without permissions has no such object, and pays one test of a pointer where it has to
  match a subject. A publisher that stays with a subject pays nothing more either, because its memo
  is of an allowed subject.
- `published` has match results of allowed subjects. A result is one object as long as the account's
  SubList keeps it, so that it stands for its subject.
- Deliveries are checked only once a subscription was accepted of which a rule denies some messages.
  Verdicts on the subjects delivered last are kept, RECEIVED_MAX at most.
- With `allow_responses`, a request that is delivered allows responses to its reply subject: so
  many, for so long. At most RESPONSES_MAX requests are remembered, the newest ones. Each new one
  removes a few whose time has passed.

Source: nats-server's `pubAllowedFullCheck`, `responseAllowed`, `checkDenySub` and
`loadMsgDenyFilterIfNeeded` (server/client.go).
"""

cimport cython
from libc.stdint cimport int64_t

from collections import OrderedDict

cdef enum:
    RECEIVED_MAX = 256
    RESPONSES_MAX = 65_536
    PRUNED_PER_REQUEST = 4


@cython.final
cdef class SessionPermissions:
    """What one session may do."""

    def __init__(self, PermissionRules rules not None):
        self.rules = rules
        self.tracks_replies = rules.responses_max != 0
        self.published = ResultSet()
        self.received = {}

    cdef Publishing may_publish(
        self, const char* subject, Py_ssize_t length, MatchResult result
    ) except? REFUSED_BY_RULES:
        """Return whether a message may be published, and remember that if it is.

        `result` is the match of its subject, and not one of `published`.
        """
        if not self.rules.allows_publish(subject, length):
            if self.tracks_replies and self.take_response(subject[:length]):
                return ALLOWED_AS_RESPONSE
            return REFUSED_BY_RULES
        if result.live:     # otherwise it is filled again with other subjects
            self.published.add(result)
        return ALLOWED_BY_RULES

    cdef bint may_subscribe(self, bytes subject, bytes queue) except -1:
        """Return whether a subscription is allowed, and check deliveries if some are denied."""
        if not self.rules.allows_subscribe(subject, queue):
            return False
        if not self.filters:
            self.filters = self.rules.may_deny_some(subject, queue)
        return True

    cdef bint may_receive(self, bytes subject, bytes queue) except -1:
        """Return whether a message on a subject may be delivered."""
        cdef bytes name = subject if queue is None else subject + b" " + queue
        verdict = self.received.get(name)
        if verdict is None:
            verdict = not self.rules.denies_delivery(subject, queue)
            if len(self.received) >= RECEIVED_MAX:
                del self.received[next(iter(self.received))]
            self.received[name] = verdict
        return verdict

    cdef int note_request(self, const char* reply, Py_ssize_t length) except -1:
        """Allow responses to a request that was delivered, unless the rules allow them anyway."""
        cdef bytes name
        cdef int64_t now_ns
        cdef int _i
        if self.rules.allows_publish(reply, length):
            return 0
        name = reply[:length]
        now_ns = monotonic_ns()
        if self.responses is None:
            self.responses = OrderedDict()
        self.responses.pop(name, None)      # the newest request is the last one
        self.responses[name] = (0, now_ns)
        if len(self.responses) > RESPONSES_MAX:
            self.responses.popitem(False)
        for _i in range(PRUNED_PER_REQUEST):
            name = next(iter(self.responses))
            if not self.is_over(self.responses[name][1], now_ns):
                break
            del self.responses[name]
        return 0

    cdef bint take_response(self, bytes reply) except -1:
        """Return whether one more message may be published in response to a request."""
        cdef int64_t sent, since_ns
        noted = None if self.responses is None else self.responses.get(reply)
        if noted is None:
            return False
        sent, since_ns = noted
        if self.is_over(since_ns, monotonic_ns()):
            del self.responses[reply]
            return False
        sent += 1
        if sent == self.rules.responses_max:
            del self.responses[reply]
        else:
            self.responses[reply] = (sent, since_ns)
        return True

    cdef bint is_over(self, int64_t since_ns, int64_t now_ns) noexcept:
        """Return whether the time for responses to a request has passed."""
        return 0 < self.rules.responses_ttl_ns < now_ns - since_ns
