"""The sinks of a consumer, for compiled callers; see sinks.pyx."""

from natsd.core.routing cimport Message, Sink
from natsd.jetstream.consumer.requests cimport PullRequests, PushSubject
from natsd.jetstream.stream.state cimport Reader
from natsd.store.consumer.tracking cimport ConsumerTracker


cdef class ConsumerInput(Reader)


cdef class AckSink(Sink):
    cdef ConsumerInput engine


cdef class PullSink(Sink):
    cdef ConsumerInput engine


cdef class FlowControlSink(Sink):
    cdef ConsumerInput engine


cdef class ConsumerInput(Reader):
    cdef readonly AckSink ack_sink
    cdef readonly PullSink pull_sink
    cdef readonly FlowControlSink flow_control_sink
    cdef readonly ConsumerTracker tracker
    cdef readonly bint is_stopped
    cdef bint is_running        # inside `run`: arriving messages are postponed
    cdef list postponed         # (sink, subject, reply, headers, body)
    cdef bytes stream_token
    cdef bytes name_token
    cdef Acks acks
    cdef PullRequests requests
    cdef PushSubject push

    cdef int wake(self) except -1
    cdef int ask(
        self, const char* reply, Py_ssize_t reply_len, const char* body, Py_ssize_t body_len
    ) except -1
    cdef int postpone(self, Sink sink, Message* message) except -1
    cdef int take_postponed(self) except -1
    cdef int acknowledge_by_flow(self, bytes headers) except -1
