"""The stream import: the sink of subscriptions listed in the account of an exported stream.

    account A exports orders.>           SubList of A:  orders.eu.*  ImportedSubscription
    account B imports it with prefix a                     │ sink: StreamImportSink (A ─▶ B)
    SUB a.orders.eu.* in B                                 ▼
                                         the subscription in B, with the subject a.orders.eu.x

- A subscription in B is matched against B's imports when it is made, and stands in A's SubList from
  then on. So a message is matched once, in A; a delivery costs the mapping of its subject on top.
- The recipients' limits, permissions and auto-unsubscribe are those of the subscription in B.
- A message that came into A through a service import is not passed on to streams' importers, and an
  imported stream is not exported again.

Source: nats-server's shadow subscriptions, `addShadowSubscriptions` (server/client.go).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t

from natsd.core.network cimport ClientSession, TracedMessage, deliver_unrecorded
from natsd.core.routing cimport (
    ImportedSubscription, Message, Origin, Sink, SubjectMemo, SubjectTransform, Subscription,
    hash_name, wire_bytes,
)

from natsd.core.network import NO_ECHO


cdef Sink silent_publisher(const Origin* origin):
    """Return the publishing session if it wants no messages of its own (see stream_import.pxd)."""
    if origin.session == NULL or not isinstance(<object> origin.session, ClientSession):
        return None
    return None if (<ClientSession> origin.session).echo else <Sink> origin.session


cdef class StreamImportSink(Sink):
    """One stream import of an account."""

    def __init__(self, account, *, str subject=None, transform=None, bint allows_trace=False):
        """Recipients see `subject`, or what `transform` (source, destination) makes of it.

        With neither they see the exported subject. `account` is the importing account.
        """
        self.account = account
        self.allows_trace = allows_trace
        self.subject = None if subject is None else wire_bytes(subject)
        if transform is not None:
            self.transform = SubjectTransform(*transform)
            self.memo = SubjectMemo()

    cdef bytes imported_subject(self, Message* message):
        """Return the subject that recipients see; None: that of the message."""
        cdef const char* out = NULL
        cdef Py_ssize_t length = 0
        cdef uint64_t hash
        cdef bytes result
        if self.transform is None:
            return self.subject
        hash = hash_name(message.subject, message.subject_len)
        result = self.memo.find(message.subject, message.subject_len, hash)
        if result is None and self.transform.apply(
            message.subject, message.subject_len, &out, &length
        ):
            result = out[:length]
            self.memo.keep(message.subject[:message.subject_len], hash, result)
        return result

    cdef int deliver(self, Subscription sub, Message* message) except -1:
        cdef Subscription original = (<ImportedSubscription> sub).original
        cdef Message changed
        cdef bytes subject
        if self.has_ended or sub.closed or message.origin.hop != NULL or (
            original.sink is silent_publisher(message.origin)
        ):
            return 0
        subject = self.imported_subject(message)
        if subject is not None:
            changed = message[0]
            changed.subject = PyBytes_AS_STRING(subject)
            changed.subject_len = PyBytes_GET_SIZE(subject)
            message = &changed
        if not original.sink.deliver(original, message):
            return 0
        sub.delivered += 1
        return 1

    def deliver_traced(self, Subscription sub not None, TracedMessage traced not None) -> bool:
        """Deliver a traced message and record that it passes into another account.

        Unless `allows_trace`, what happens behind that is not recorded.
        """
        cdef Subscription original = (<ImportedSubscription> sub).original
        cdef Message changed = traced.message[0]
        cdef TracedMessage further = TracedMessage.__new__(TracedMessage)
        cdef bytes subject
        if self.has_ended or sub.closed or traced.message.origin.hop != NULL:
            return False
        if original.sink is silent_publisher(traced.message.origin):
            traced.trace.egress(original.sink, original, NO_ECHO)
            return False
        subject = self.imported_subject(<Message*> traced.message)
        if subject is not None:
            changed.subject = PyBytes_AS_STRING(subject)
            changed.subject_len = PyBytes_GET_SIZE(subject)
        traced.trace.stream_export(self.account.name, changed.subject[:changed.subject_len])
        further.message = &changed
        further.trace = traced.trace
        deliver = getattr(original.sink, "deliver_traced", None)
        if deliver is not None and self.allows_trace:
            taken = deliver(original, further)
        else:
            taken = deliver_unrecorded(original, further)
        if taken and not traced.trace.is_only:
            sub.delivered += 1
        return taken
