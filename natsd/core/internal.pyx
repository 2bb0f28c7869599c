"""Messages to the server's own parts: the slow kind, for everything that is not per message.

A callback gets owned bytes, outside of the publisher's turn through the parser; what it raises is
logged and ends nobody's connection (`Reactor.run_task`).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp

from natsd.core.reactor cimport Reactor
from natsd.core.subscription cimport Message, Sink, Subscription
from natsd.core.tracing cimport TracedMessage, deliver_unrecorded


cdef class CallbackSink(Sink):
    """Calls `callback(subject, reply, headers, payload)` at the end of the turn.

    With `tells_origin` one argument more: the connection that published, None for the server's own.
    """

    def __init__(self, Reactor reactor, callback, *, bint tells_origin=False):
        self.reactor = reactor
        self.callback = callback
        self.tells_origin = tells_origin

    cdef int deliver(self, Subscription sub, Message* message) except -1:
        cdef Py_ssize_t head = message.header_len
        cdef tuple arguments
        if sub.closed:
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
            arguments += (None if self.reactor.is_sending else self.reactor.reading,)
        self.reactor.enqueue(self.callback, arguments)
        return 1

    def deliver_traced(self, Subscription sub not None, TracedMessage traced not None) -> bool:
        """A service is an import from the system account; with trace-only it is not asked."""
        if self.tells_origin and not sub.closed:
            traced.trace.service_import(
                traced.message.subject[:traced.message.subject_len].decode("utf-8", "replace")
            )
            if traced.trace.is_only:
                return False
        return deliver_unrecorded(sub, traced)


cdef class IgnoringSink(Sink):
    """Takes messages and does nothing, so that a requestor is not told that nobody listens.

    It does not take those whose subject begins with one of `refused`.
    """

    def __init__(self, tuple refused not None):
        self.refused = refused

    cdef int deliver(self, Subscription sub, Message* message) except -1:
        cdef bytes prefix
        cdef Py_ssize_t size
        for prefix in self.refused:
            size = PyBytes_GET_SIZE(prefix)
            if message.subject_len >= size and (
                memcmp(message.subject, PyBytes_AS_STRING(prefix), size) == 0
            ):
                return 0
        return 1

    def deliver_traced(self, Subscription sub not None, TracedMessage traced not None) -> bool:
        """With trace-only nobody would take the message."""
        if traced.trace.is_only:
            return False
        return deliver_unrecorded(sub, traced)
