"""What acknowledgements do: see acks.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.jetstream.consumer.ack_message cimport AckMessage
from natsd.jetstream.consumer.confirmations cimport Confirmations
from natsd.jetstream.consumer.redelivery cimport Redelivery
from natsd.jetstream.scheduler cimport Scheduler
from natsd.jetstream.stream.core cimport StreamCore
from natsd.store.consumer_tracker cimport ConsumerTracker
from natsd.store.log cimport MessageLog


cdef class Acks:
    cdef ConsumerTracker tracker
    cdef Redelivery redelivery
    cdef Confirmations confirmations
    cdef StreamCore stream
    cdef Scheduler scheduler
    cdef object events
    cdef int sample_percent
    cdef uint64_t* released     # head .. tail: to be told to the stream
    cdef Py_ssize_t released_head
    cdef Py_ssize_t released_tail
    cdef Py_ssize_t released_capacity
    cdef bint was_acked         # since the flag was taken
    cdef uint64_t seen_gone     # messages gone from the log when pending ones were last compared
    cdef uint64_t lost_from     # where that goes on
    cdef uint64_t pruned_at     # the log's first when counts of gone messages were let go of

    # Do what it says; the answer, if `reply` asks for one, waits in `confirmations`. All but NEXT's
    # request, which is the caller's.
    cdef int take(self, AckMessage* ack, const char* reply, Py_ssize_t reply_len) except -1
    # A pending message is gone from the stream.
    cdef int lose(self, uint64_t sequence) except -1
    # All pending ones that the stream has removed at its front; elsewhere, for who is not told of
    # each. At most `budget`; True: there may be more.
    cdef bint lose_front(self, MessageLog log, Py_ssize_t budget) except? -1
    cdef bint lose_inside(self, MessageLog log, Py_ssize_t budget) except? -1
    # The copy of a dead letter is on disk. / Dead letters are no more: as if there never were any.
    cdef int settle(self, uint64_t sequence) except -1
    cdef int give_up_letters(self) except -1
    # The consumer needs it no more.
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
