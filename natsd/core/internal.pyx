"""Messages to the server's own parts: the slow kind, for everything that is not per message.

A callback gets owned bytes, outside of the publisher's turn through the parser; what it raises is
logged and ends nobody's connection (`Reactor.run_task`).
"""

from natsd.core.reactor cimport Reactor
from natsd.core.subscription cimport Message, Sink, Subscription


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
