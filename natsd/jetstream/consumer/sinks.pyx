"""The sinks of a consumer: acknowledgements, pull requests, answers to flow control.

    client ──ack────▶ AckSink ─────────▶ acks, and a request with +NXT
           ──request▶ PullSink ────────▶ ask
           ──answer─▶ FlowControlSink ─▶ push, and acks where answers acknowledge

`Inbox` has the three sinks of an engine, and the messages that it has not taken yet.

Promise
- What a sink takes is in the tracker, or among the requests, when `deliver` returns; the
  consequences follow in the engine's `run`.
- Nothing is taken inside of `run`: messages that arrive meanwhile are copied, and taken before the
  next slice.
- A message that is not understood, or is for another consumer, changes nothing.

Source: ADR-13, ADR-15; nats-server's `processAck`, `processNextMsgReq` and `processFlowControl`.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memcmp

from natsd.core.routing cimport ACCOUNT_KIND, Message, Origin, Sink, Subscription
from natsd.jetstream.consumer.requests cimport AckMessage, NEXT, parse_ack_body, parse_ack_subject
from natsd.jetstream.headers import LAST_CONSUMER, LAST_STREAM, demands_too_much, header_value


# Origin of messages that were kept: who published them was not.
cdef Origin UNKNOWN_ORIGIN = Origin(session=NULL, account=NULL, kind=ACCOUNT_KIND, hop=NULL)


cdef inline bint is_token(bytes token, const char* text, Py_ssize_t length) noexcept:
    return len(token) == length and memcmp(<const char*> token, text, length) == 0


cdef class AckSink(Sink):
    """The sink of acknowledgements."""

    cdef int deliver(self, Subscription sub, Message* message) except -1:
        cdef ConsumerEngine engine = self.engine
        cdef AckMessage ack
        if sub.closed or engine is None or engine.is_stopped:
            return 0
        sub.delivered += 1
        if engine.is_running:
            return engine.inbox.keep(self, message)
        if (
            not parse_ack_subject(message.subject, message.subject_len, &ack)
            or not is_token(self.stream_token, ack.stream, ack.stream_len)
            or not is_token(self.name_token, ack.consumer, ack.consumer_len)
        ):
            return 1
        parse_ack_body(
            message.data + message.header_len, message.data_len - message.header_len, &ack
        )
        engine.acks.take(&ack, message.reply, message.reply_len)
        if ack.kind == NEXT and message.reply_len:
            engine.ask(message.reply, message.reply_len, ack.argument, ack.argument_len)
        engine.wake()
        return 1


cdef class PullSink(Sink):
    """The sink of pull requests."""

    cdef int deliver(self, Subscription sub, Message* message) except -1:
        cdef ConsumerEngine engine = self.engine
        if sub.closed or engine is None or engine.is_stopped:
            return 0
        sub.delivered += 1
        if message.reply_len == 0:
            return 1
        if engine.is_running:
            return engine.inbox.keep(self, message)
        if message.header_len and demands_too_much(message.data[:message.header_len]):
            engine.requests.answer(
                message.reply, message.reply_len, "412 Required Api Level"
            )
        else:
            engine.ask(
                message.reply, message.reply_len, message.data + message.header_len,
                message.data_len - message.header_len,
            )
        engine.wake()
        return 1


cdef class FlowControlSink(Sink):
    """The sink of answers to flow control requests."""

    cdef int deliver(self, Subscription sub, Message* message) except -1:
        cdef ConsumerEngine engine = self.engine
        if sub.closed or engine is None or engine.is_stopped:
            return 0
        sub.delivered += 1
        if engine.is_running:
            return engine.inbox.keep(self, message)
        if engine.push.controlled(message.subject, message.subject_len):
            if engine.tracker.ack_policy == POLICY_FLOW_CONTROL and message.header_len:
                self.acknowledge(message.data[:message.header_len])
            engine.wake()
        return 1

    cdef int acknowledge(self, bytes headers) except -1:
        """Acknowledge the messages that the client has read, as its answer's headers say."""
        cdef uint64_t sequence = sequence_of(headers, LAST_STREAM)
        if sequence:
            self.engine.acks.was_acked = True
            self.engine.acks.acknowledge_all(sequence, sequence_of(headers, LAST_CONSUMER))
        return 0


cdef uint64_t sequence_of(bytes headers, str name):
    value = header_value(headers, name)
    return int(value) if value and value.isdigit() and len(value) < 19 else 0


cdef class Inbox:
    """The sinks of an engine, and the messages that arrived inside of its `run`."""

    def __cinit__(self, ConsumerEngine engine not None, str stream not None, str consumer not None):
        self.kept = []
        self.ack_sink = AckSink()
        self.ack_sink.stream_token = stream.encode()
        self.ack_sink.name_token = consumer.encode()
        self.pull_sink = PullSink()
        self.flow_control_sink = FlowControlSink()
        self.ack_sink.engine = self.pull_sink.engine = self.flow_control_sink.engine = engine

    cdef int keep(self, Sink sink, Message* message) except -1:
        """Keep a message that arrived inside of `run`; it counts as delivered."""
        self.kept.append((
            sink, message.subject[:message.subject_len],
            message.reply[:message.reply_len] if message.reply_len else b"",
            message.data[:message.header_len], message.data[message.header_len:message.data_len],
        ))
        return 1

    cdef int deliver_kept(self) except -1:
        """Deliver the messages that were kept, in the order of their arrival."""
        cdef list kept = self.kept
        cdef bytes subject, reply, headers, body, data
        cdef Subscription sub = Subscription(b"kept", sink=self.ack_sink)
        cdef Message message
        cdef Sink sink
        self.kept = []
        for sink, subject, reply, headers, body in kept:
            data = headers + body
            message.subject, message.subject_len = subject, len(subject)
            message.reply, message.reply_len = reply, len(reply)
            message.data, message.data_len = data, len(data)
            message.header_len = len(headers)
            message.origin = &UNKNOWN_ORIGIN
            sink.deliver(sub, &message)
        return 0
