"""Sessions: what a connection means. A session is the sink of its peer's subscriptions.

    Endpoint   bytes in, bytes out, congestion: knows no protocol     endpoint.pyx
    Protocol   bytes to operations                                    protocol.pyx, parser.pyx
    Session    kind, account, subscriptions, permissions, limits      client_session.pyx

- An endpoint has one protocol and one session from `attach` to its end. Then it lets go of both, so
  that the three do not keep each other alive.
- Messages that a session publishes carry it as their origin, with its kind and account.
- A session in plain Python (of a protocol with few messages) overrides `send_message`. If that
  raises, the exception is logged and closes this session's endpoint, not the publisher's.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from natsd.core.routing cimport Kind, Message, Origin, Sink, Subscription


cdef class Session(Sink):
    """What a connection means; this class leaves everything to its hooks."""

    def __init__(self, Endpoint endpoint not None, Kind kind):
        self.reactor = endpoint.reactor
        self.endpoint = endpoint
        self.origin = Origin(session=<PyObject*>self, account=NULL, kind=kind, hop=NULL)

    @property
    def account(self):
        """Account in which the peer publishes and subscribes; None: none yet."""
        return self.current_account

    @account.setter
    def account(self, account):
        self.current_account = account
        self.origin.account = NULL
        if account is not None:
            self.origin.account = <PyObject*>account

    cdef int deliver(self, Subscription sub, Message* message) except -1:
        if sub.closed or self.endpoint.reason is not None:
            return 0
        try:
            taken = self.send_message(
                sub, message.subject[:message.subject_len],
                None if message.reply == NULL else message.reply[:message.reply_len],
                message.data[:message.header_len],
                message.data[message.header_len:message.data_len],
            )
        except Exception:
            self.reactor.log_failure("a connection is closed because it could not take a message")
            self.endpoint.fail()
            return 0
        if not taken:
            return 0
        sub.delivered += 1
        if self.endpoint.is_congested:
            self.reactor.congested = self.endpoint
        return 1

    cdef int read_over(self) except -1:
        return 0

    cdef int before_flush(self) except -1:
        return 0

    cdef int check_deadlines(self, int64_t now_ns) except -1:
        return 0

    cdef int end(self) except -1:
        self.closed()
        return 0

    # ---- hooks

    def send_message(
        self, Subscription sub not None, bytes subject not None, bytes reply,
        bytes headers not None, bytes data not None,
    ) -> bool:
        """Append a message for the peer to the endpoint; return whether that was possible.

        `headers` is a whole header block, or empty. No message may be published meanwhile.
        """
        return False

    def slow_consumer(self, str why, bint is_known=False) -> None:
        """Handle that the peer reads too slowly; `why` is the exceeded limit.

        The connection is closed, or it gets another write deadline. With `is_known` it got one
        before, and has not caught up since.
        """

    def caught_up(self) -> None:
        """Handle that the peer read all, after a write deadline that did not close."""

    def ended(self) -> None:
        """Handle that the peer sent FIN while bytes are still pending for it."""

    def closed(self) -> None:
        """Handle the end of the connection; its endpoint has a reason and takes no bytes."""

    # ---- of the endpoint

    def close(self, reason) -> None:
        """Close the connection at the end of this turn; the first `reason` is kept."""
        self.endpoint.close(reason)

    def send_protocol(self, bytes data not None) -> None:
        """Queue protocol text, such as INFO, -ERR or a 503."""
        self.endpoint.send(data)

    @property
    def reason(self):
        """ClosedReason; None: the connection is open."""
        return self.endpoint.reason

    @property
    def last_activity_ns(self) -> int:
        """Time of the last read, in ns of the monotonic clock."""
        return self.endpoint.last_activity_ns

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for the socket."""
        return self.endpoint.pending_bytes

    @property
    def stalls(self) -> int:
        """How often publishers waited for this connection."""
        return self.endpoint.stalls


cdef Session make_nobody():
    return Session.__new__(Session)


nobody = make_nobody()
