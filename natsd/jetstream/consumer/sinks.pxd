"""The sinks of a consumer, for compiled callers; see sinks.pyx."""

from natsd.core.routing cimport Message, Sink
from natsd.jetstream.stream.state cimport Reader


cdef class ConsumerEngine(Reader)


cdef class AckSink(Sink):
    cdef ConsumerEngine engine
    cdef bytes stream_token     # of the subjects of acknowledgements to this consumer
    cdef bytes name_token


cdef class PullSink(Sink):
    cdef ConsumerEngine engine


cdef class FlowControlSink(Sink):
    cdef ConsumerEngine engine

    cdef int acknowledge(self, bytes headers) except -1


cdef class Inbox:
    cdef readonly AckSink ack_sink
    cdef readonly PullSink pull_sink
    cdef readonly FlowControlSink flow_control_sink
    cdef list kept              # (sink, subject, reply, headers, body)

    cdef int keep(self, Sink sink, Message* message) except -1
    cdef int deliver_kept(self) except -1
