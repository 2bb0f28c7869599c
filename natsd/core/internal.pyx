"""Sinks of the server's own subscriptions: Python callbacks, for everything but hot paths.

A callback gets owned bytes. It runs at the end of the reactor's turn, not while the publisher's
bytes are parsed. If it raises, the exception is logged and no connection is closed
(`Reactor.run_task`).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp

from natsd.core.routing cimport Message, Sink, Subscription


cdef bint begins_with_any(Message* message, tuple prefixes):
    """Return whether the message's subject begins with one of the prefixes."""
    cdef bytes prefix
    cdef Py_ssize_t size
    for prefix in prefixes:
        size = PyBytes_GET_SIZE(prefix)
        if message.subject_len >= size and (
            memcmp(message.subject, PyBytes_AS_STRING(prefix), size) == 0
        ):
            return True
    return False


cdef class CallbackSink(Sink):
    """Sink that calls `callback(subject, reply, headers, payload)` at the end of the turn.

    `reply` is None without a reply subject; `headers` is the whole header block, or empty. With
    `tells_origin` a fifth argument is the session that published the message, or None if the server
    itself did. A message whose subject begins with one of the `refused` prefixes is not accepted: a
    request that no other sink accepts gets a 503 (no responders).
    """

    def __init__(
        self, Reactor reactor, callback, *, bint tells_origin=False, tuple refused not None=(),
    ):
        self.reactor = reactor
        self.callback = callback
        self.tells_origin = tells_origin
        self.refused = refused

    cdef int deliver(self, Subscription sub, Message* message) except -1:
        cdef Py_ssize_t head = message.header_len
        cdef tuple arguments
        if sub.closed or (self.refused and begins_with_any(message, self.refused)):
            return 0
        sub.delivered += 1
        arguments = (
            message.subject[:message.subject_len].decode("utf-8", "surrogateescape"),
            None if message.reply == NULL
            else message.reply[:message.reply_len].decode("utf-8", "surrogateescape"),
            <bytes>message.data[:head],
            <bytes>message.data[head:message.data_len],
        )
        if self.tells_origin:
            arguments += (
                None if message.origin.session == NULL else <object>message.origin.session,
            )
        self.reactor.enqueue(self.callback, arguments)
        return 1

    def deliver_traced(self, Subscription sub not None, TracedMessage traced not None) -> bool:
        """Deliver a traced message; a sink that `tells_origin` records it as a service import.

        Returns whether the message was delivered. With trace-only such a service is not called, and
        the result is False.
        """
        if self.refused and begins_with_any(traced.message, self.refused):
            return False
        if self.tells_origin and not sub.closed:
            traced.trace.service_import(
                traced.message.subject[:traced.message.subject_len].decode("utf-8", "replace")
            )
            if traced.trace.is_only:
                return False
        return deliver_unrecorded(sub, traced)
