"""The effects of acknowledgements; see acks.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.jetstream.consumer.requests cimport AckMessage, Confirmations
from natsd.jetstream.stream.state cimport Scheduler, StreamReaders
from natsd.store.consumer.tracking cimport ConsumerTracker
from natsd.store.log.message_log cimport MessageLog


cdef class Acks:
    cdef ConsumerTracker tracker
    cdef Redelivery redelivery
    cdef Confirmations confirmations
    cdef StreamReaders stream
    cdef Scheduler scheduler
    cdef object events
    cdef int sample_percent
    cdef uint64_t* released     # from head to tail: to be reported to the stream
    cdef Py_ssize_t released_head
    cdef Py_ssize_t released_tail
    cdef Py_ssize_t released_capacity
    cdef bint was_acked         # since the engine last reset the flag
    cdef uint64_t seen_gone     # messages gone from the log at the last comparison
    cdef uint64_t lost_from     # sequence at which the comparison goes on
    cdef uint64_t pruned_at     # the log's first sequence at the last pruning

    # Apply an acknowledgement; its answer, if `reply` asks for one, waits in `confirmations`. The
    # request in a NEXT is left to the caller.
    cdef int take(self, AckMessage* ack, const char* reply, Py_ssize_t reply_len) except -1
    # Take out a pending message that is gone from the stream.
    cdef int lose(self, uint64_t sequence) except -1
    # Take out pending messages that the stream has removed: `lose_front` those at its front,
    # `lose_inside` those elsewhere, for a consumer that is not told of each removal. At most
    # `budget` messages; True: there may be more.
    cdef bint lose_front(self, MessageLog log, Py_ssize_t budget) except? -1
    cdef bint lose_inside(self, MessageLog log, Py_ssize_t budget) except? -1
    # `settle` takes out a dead letter whose copy is on disk, `give_up_letters` all of them, because
    # dead letters are not copied any more.
    cdef int settle(self, uint64_t sequence) except -1
    cdef int give_up_letters(self) except -1
    # Note that the consumer needs the message no more.
    cdef int release(self, uint64_t sequence) except -1

    cdef bint acknowledge(self, AckMessage* ack, bint may_sample) except -1
    cdef bint acknowledge_one(self, AckMessage* ack, bint may_sample) except -1
    cdef bint acknowledge_all(self, uint64_t sequence, uint64_t consumer_sequence) except -1
    cdef int refuse(self, AckMessage* ack) except -1
    cdef int progress(self, uint64_t sequence) except -1
    cdef int terminate(self, AckMessage* ack) except -1
    cdef int sample(self, Py_ssize_t index, AckMessage* ack) except -1
    cdef uint64_t deliveries(self, uint64_t sequence) except 0
    cdef int failed(self) except -1
