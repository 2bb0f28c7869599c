"""The rules of a user's permissions, compiled: which subjects it may publish and subscribe to.

    publish    allow [orders.>, time]      PUB orders.new      allowed and not denied
               deny  [orders.secret]       PUB orders.secret   denied
    subscribe  allow ["jobs.* workers"]    SUB jobs.a workers  allowed in that queue only
               deny  [orders.secret]       SUB orders.*        accepted; messages on orders.secret
                                                               are not delivered

- Rules never change: all sessions of a user share one object, and a change of the user's
  permissions is another object.
- Each list of rules is a SubList, in which a rule is a subscription: a check costs one walk along
  the tokens of the subject, however many rules there are.
- A subscription is allowed if one rule allows every subject that it can receive. It is denied if a
  rule denies every such subject; a rule that denies only some of them filters messages instead.
  nats-server differs in one case: there, `allow foo.*` also lets a client subscribe to `foo.>`.
- If a subscription of a queue group matches rules that name queues, these decide alone.

Source: nats-server's `setPermissions`, `canSubscribeInternal`, `queueMatches` and `checkDenySub`
(server/client.go).
"""

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class PermissionRules:
    """What a user may publish and subscribe to.

    `publish_allow` and `subscribe_allow` None allow everything. A rule for subscriptions may be a
    subject, a space and a queue, which may have wildcards. Raises InvalidSubject for another rule.
    """

    def __init__(
        self, *, publish_allow=None, publish_deny=(), subscribe_allow=None, subscribe_deny=(),
        int64_t responses_max=0, int64_t responses_ttl_ns=0,
    ):
        self.publish_allow = None if publish_allow is None else tuple(publish_allow)
        self.publish_deny = tuple(publish_deny)
        self.subscribe_allow = None if subscribe_allow is None else tuple(subscribe_allow)
        self.subscribe_deny = tuple(subscribe_deny)
        self.responses_max = responses_max
        self.responses_ttl_ns = responses_ttl_ns
        self.publish_allowed = None if publish_allow is None else rule_list(self.publish_allow)
        self.publish_denied = rule_list(self.publish_deny) if self.publish_deny else None
        self.subscribe_allowed = (
            None if subscribe_allow is None else rule_list(self.subscribe_allow, with_queue=True)
        )
        self.subscribe_denied = (
            rule_list(self.subscribe_deny, with_queue=True) if self.subscribe_deny else None
        )

    def __repr__(self):
        return (
            f"PermissionRules(publish={self.publish_allow} but {self.publish_deny}, "
            f"subscribe={self.subscribe_allow} but {self.subscribe_deny})"
        )

    cdef bint allows_publish(self, const char* subject, Py_ssize_t length) except -1:
        """Return whether the rules allow to publish to a subject, responses aside."""
        if self.publish_allowed is not None and not any_matches(
            self.publish_allowed, subject, length
        ):
            return False
        return self.publish_denied is None or not any_matches(self.publish_denied, subject, length)

    cdef bint allows_subscribe(self, bytes subject, bytes queue) except -1:
        """Return whether the rules allow a subscription, plain if `queue` is None."""
        if self.subscribe_allowed is not None and not matches_rules(
            self.subscribe_allowed, subject, queue, True
        ):
            return False
        return self.subscribe_denied is None or not matches_rules(
            self.subscribe_denied, subject, queue, False
        )

    cdef bint denies_delivery(self, bytes subject, bytes queue) except -1:
        """Return whether a message must not be delivered to a subscription, plain or in a queue."""
        return self.subscribe_denied is not None and matches_rules(
            self.subscribe_denied, subject, queue, False
        )

    cdef bint may_deny_some(self, bytes subject, bytes queue) except -1:
        """Return whether some messages of an allowed subscription may be denied."""
        if self.subscribe_denied is None:
            return False
        if queue is None and subject_is_literal(subject, len(subject)):
            return False
        return len(self.subscribe_denied.reverse_match(subject)) > 0

    # For Python

    def may_publish(self, subject) -> bool:
        """Return whether the rules allow to publish to a subject, responses aside."""
        cdef bytes name = wire_bytes(subject)
        return self.allows_publish(name, len(name))

    def may_subscribe(self, subject, queue=None) -> bool:
        """Return whether the rules allow a subscription, in a queue group if `queue` is given."""
        return self.allows_subscribe(
            wire_bytes(subject), None if queue is None else wire_bytes(queue)
        )

    def may_receive(self, subject, queue=None) -> bool:
        """Return whether messages on a subject may be delivered to an accepted subscription."""
        return not self.denies_delivery(
            wire_bytes(subject), None if queue is None else wire_bytes(queue)
        )

    def with_publish_deny(self, *subjects) -> PermissionRules:
        """Return rules that deny to publish to these subjects, too."""
        return PermissionRules(
            publish_allow=self.publish_allow, publish_deny=(*self.publish_deny, *subjects),
            subscribe_allow=self.subscribe_allow, subscribe_deny=self.subscribe_deny,
            responses_max=self.responses_max, responses_ttl_ns=self.responses_ttl_ns,
        )


cdef SubList rule_list(tuple rules, bint with_queue=False):
    """Return a SubList with a subscription for each rule. Raises InvalidSubject."""
    cdef SubList compiled = SubList(cache=False)
    for rule in rules:
        words = rule.split()
        if not 1 <= len(words) <= 1 + with_queue or not all(map(is_valid, words)):
            raise InvalidSubject(rule)
        compiled.insert_sub(Subscription(words[0], words[1] if len(words) > 1 else None))
    return compiled


cdef bint any_matches(SubList rules, const char* subject, Py_ssize_t length) except -1:
    """Return whether a rule matches a published subject."""
    if rules.interest.find(subject, length) < 0:
        raise MemoryError
    return rules.interest.found.count > 0


cdef bint matches_rules(
    SubList rules, bytes subject, bytes queue, bint queue_rules_decide
) except -1:
    """Return whether a rule covers every subject that a subscription to `subject` can receive.

    Rules that name a queue count for members of that queue only. If some of them match a member's
    subject and `queue_rules_decide`, rules without a queue do not count.
    """
    cdef MatchResult found = rules.match(subject)
    cdef Subscription rule
    cdef bint is_plain = False
    cdef bint is_literal_subject = subject_is_literal(subject, len(subject))
    cdef bint names_queue = False
    cdef bint is_of_queue = False
    for rule in found.plain:
        if is_literal_subject or is_subset(subject, rule.subject_bytes):
            is_plain = True
            break
    if queue is None:
        return is_plain
    for name, members in found.queues.items():
        for rule in members:
            if is_literal_subject or is_subset(subject, rule.subject_bytes):
                names_queue = True
                is_of_queue = is_of_queue or queue == rule.queue_bytes or is_subset(queue, name)
                break
    if names_queue and queue_rules_decide:
        return is_of_queue
    return is_plain or is_of_queue
