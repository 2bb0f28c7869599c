"""Messages from and to the server's own parts: the slow kind, for everything that is not per
message.

Promise
- A callback gets owned bytes, outside of the publisher's turn through the parser; what it raises is
  logged and ends nobody's connection (`Reactor.run_task`).
- An internal publish is queued, never recursive: it is routed at the end of the turn, in the order
  of the calls.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from natsd.core.distribute cimport distribute
from natsd.core.reactor cimport Counters, Reactor
from natsd.core.subscription cimport Message, Sink, Subscription
from natsd.core.match_result cimport MatchResult
from natsd.core.sublist cimport SubList


cdef class CallbackSink(Sink):
    """Calls `callback(subject, reply, headers, payload)` at the end of the turn."""

    def __init__(self, Reactor reactor, callback):
        self.reactor = reactor
        self.callback = callback

    cdef int deliver(self, Subscription sub, Message* message) except -1:
        cdef Py_ssize_t head = message.header_len
        if sub.closed:
            return 0
        sub.delivered += 1
        self.reactor.enqueue(self.callback, (
            message.subject[:message.subject_len].decode("utf-8", "surrogateescape"),
            None if message.reply == NULL
            else message.reply[:message.reply_len].decode("utf-8", "surrogateescape"),
            <bytes>message.data[:head],
            <bytes>message.data[head:message.data_len],
        ))
        return 1


cdef class Publisher:
    """Publishes into one account's SubList."""

    def __init__(self, Reactor reactor, SubList sublist, Counters counters):
        self.reactor = reactor
        self.sublist = sublist
        self.counters = counters

    def publish(self, bytes subject, bytes payload, bytes reply=None, bytes headers=b"") -> None:
        """Queue a message; `headers` is a whole header block, or empty."""
        self.reactor.enqueue(self._route, (subject, payload, reply, headers))

    def _route(self, bytes subject, bytes payload, bytes reply, bytes headers) -> None:
        cdef bytes data = headers + payload + b"\r\n"
        cdef bytes line = b"%d\r\n" % (len(data) - 2)
        cdef Message message
        if headers:
            line = b"%d " % len(headers) + line
        if reply is not None:
            line = reply + b" " + line
        message.subject = PyBytes_AS_STRING(subject)
        message.subject_len = PyBytes_GET_SIZE(subject)
        message.reply = NULL if reply is None else PyBytes_AS_STRING(reply)
        message.reply_len = 0 if reply is None else PyBytes_GET_SIZE(reply)
        message.line = PyBytes_AS_STRING(line)
        message.line_len = PyBytes_GET_SIZE(line)
        message.data = PyBytes_AS_STRING(data)
        message.data_len = PyBytes_GET_SIZE(data) - 2
        message.header_len = PyBytes_GET_SIZE(headers)
        message.owner = <PyObject*>data
        self.counters.in_msgs += 1
        self.counters.in_bytes += message.data_len
        cdef MatchResult result = self.sublist.lookup(message.subject, message.subject_len)
        cdef int64_t delivered = distribute(result, &message, self.reactor, None)
        self.reactor.congested = None
        self.counters.out_msgs += delivered
        self.counters.out_bytes += delivered * message.data_len
