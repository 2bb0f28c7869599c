"""Acknowledgements, applied to the tracker, the redelivery and the stream.

Promise
- An acknowledgement changes pending messages only, whatever its subject says: its numbers are
  compared with known ones, never trusted. A message beyond the last delivered one was never
  delivered: an acknowledgement of it gets no answer either.
- Acknowledgements that ask for an answer get it in the order of their arrival, once their effects
  are durable; one that changed nothing gets it too, since it may be a second attempt.
- Nothing is sent here, and no message is removed: those that the stream may remove wait in
  `released`.

Source: nats-server's `processAck` and the functions that it calls.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from natsd.jetstream.consumer.requests cimport (
    ACK, AckMessage, Confirmations, NAK, NEXT, NO_NUMBER, PROGRESS, TERM, parse_nak_delay, trimmed,
)
from natsd.jetstream.stream.state cimport LIMITS, StreamReaders
from natsd.store.consumer.tracking cimport ConsumerTracker
from natsd.store.log.message_log cimport MessageLog

cdef enum:
    RELEASED_CAPACITY_MIN = 64
    PERCENT = 100
    REASON_BYTES_MAX = 4096
    PRUNED_MIN = 1000           # messages: pruned again when so many more have gone

cdef int64_t DELAY_NS_MAX = 4_000_000_000_000_000_000    # about 127 years

cdef str LOST = "Unacknowledged message was deleted"


cdef class Acks:
    def __cinit__(
        self, StreamReaders stream not None, ConsumerTracker tracker not None,
        Redelivery redelivery not None, Confirmations confirmations not None, events,
    ):
        self.tracker = tracker
        self.redelivery = redelivery
        self.stream = stream
        self.scheduler = stream.scheduler
        self.events = events
        self.confirmations = confirmations

    def __dealloc__(self):
        free(self.released)

    cdef int take(self, AckMessage* ack, const char* reply, Py_ssize_t reply_len) except -1:
        cdef bint is_answered = True
        if ack.sequence == 0 or ack.sequence == NO_NUMBER:
            return 0
        if ack.kind == ACK or ack.kind == NEXT:
            is_answered = self.acknowledge(ack, True)
        elif ack.kind == TERM:
            is_answered = self.terminate(ack)
        elif ack.kind == NAK:
            self.refuse(ack)
        elif ack.kind == PROGRESS:
            self.progress(ack.sequence)
        if reply_len and is_answered and ack.kind != NEXT:
            self.confirmations.add(reply, reply_len)
        return 0

    # Acknowledgements

    cdef bint acknowledge(self, AckMessage* ack, bint may_sample) except -1:
        """Acknowledge a message, or all up to it. Returns whether the client is to be answered."""
        if ack.sequence > self.tracker.delivered_stream or self.tracker.ack_policy == POLICY_NONE:
            return False
        self.was_acked = True
        if self.tracker.ack_policy == POLICY_EXPLICIT:
            return self.acknowledge_one(ack, may_sample)
        return self.acknowledge_all(ack.sequence, ack.consumer_sequence)

    cdef bint acknowledge_one(self, AckMessage* ack, bint may_sample) except -1:
        cdef Py_ssize_t index = self.tracker.find(ack.sequence)
        if index >= 0:
            if may_sample and self.sample_percent > 0:
                self.sample(index, ack)
            self.tracker.acknowledge(self.tracker.items[index].consumer, ack.sequence)
            self.redelivery.forget(ack.sequence)
            self.release(ack.sequence)
        elif len(self.tracker.redelivered) and ack.sequence in self.tracker.redelivered:
            # delivered too often, and acknowledged after all
            self.tracker.acknowledge(self.tracker.floor_consumer, ack.sequence)
            self.release(ack.sequence)
        return True

    cdef bint acknowledge_all(self, uint64_t sequence, uint64_t consumer_sequence) except -1:
        """Acknowledge a message and all before it."""
        cdef Py_ssize_t index = self.tracker.find(sequence), at
        if index < 0 or consumer_sequence > self.tracker.delivered_consumer:
            return True
        if self.stream.retention != LIMITS:
            for at in range(self.tracker.head, index + 1):
                if self.tracker.items[at].consumer:
                    self.release(self.tracker.items[at].stream)
        self.tracker.acknowledge(
            # The consumer sequence of the first delivery, as for messages still pending; the last
            # message of all may have a later one.
            self.tracker.delivered_consumer if index == self.tracker.tail - 1
            else self.tracker.items[index].consumer, sequence,
        )
        self.redelivery.forget_through(sequence)
        return True

    cdef int sample(self, Py_ssize_t index, AckMessage* ack) except -1:
        cdef uint64_t drawn = self.scheduler.reactor.random(PERCENT)
        if drawn >= <uint64_t> self.sample_percent:
            return 0
        time_ns = self.scheduler.now() - self.tracker.items[index].time_ns
        try:
            self.events.sampled(
                ack.sequence, self.tracker.items[index].consumer, self.deliveries(ack.sequence),
                max(1, time_ns),
            )
        except Exception:
            self.failed()
        return 0

    # NAK, progress and termination

    cdef int refuse(self, AckMessage* ack) except -1:
        cdef Py_ssize_t index = self.tracker.find(ack.sequence)
        cdef int64_t delay_ns = 0
        cdef uint64_t count
        if (
            index < 0 or ack.consumer_sequence <= self.tracker.floor_consumer
            or ack.consumer_sequence > self.tracker.delivered_consumer
            or self.redelivery.is_parked(ack.sequence)
        ):
            return 0
        count = self.deliveries(ack.sequence)
        try:
            self.events.nacked(ack.sequence, ack.consumer_sequence, count)
        except Exception:
            self.failed()
        if not parse_nak_delay(ack.argument, ack.argument_len, &delay_ns):
            return self.redelivery.enqueue(ack.sequence)
        delay_ns = max(-DELAY_NS_MAX, min(delay_ns, DELAY_NS_MAX))
        self.tracker.update_delivered(
            self.tracker.items[index].consumer, ack.sequence, count,
            self.scheduler.now() - self.redelivery.wait_ns(ack.sequence) + delay_ns,
        )
        self.redelivery.dequeue(ack.sequence)
        return self.redelivery.moved(ack.sequence)

    cdef int progress(self, uint64_t sequence) except -1:
        cdef Py_ssize_t index = self.tracker.find(sequence)
        if index < 0 or self.redelivery.is_parked(sequence):
            return 0
        self.tracker.update_delivered(
            self.tracker.items[index].consumer, sequence, 1, self.scheduler.now()
        )
        if sequence not in self.redelivery.queued:
            self.redelivery.moved(sequence)
        return 0

    cdef int terminate(self, AckMessage* ack) except -1:
        cdef bint was_pending = self.tracker.find(ack.sequence) >= 0
        cdef uint64_t count = self.deliveries(ack.sequence)
        cdef bytes reason = trimmed(
            ack.argument, min(ack.argument_len, <Py_ssize_t> REASON_BYTES_MAX)
        )
        cdef bint is_answered = True
        if was_pending and self.redelivery.letters is not None:
            if self.redelivery.is_parked(ack.sequence):
                return True
            self.was_acked = True
            self.tracker.terminate(ack.sequence)
            self.redelivery.park(ack.sequence, reason)
        else:
            is_answered = self.acknowledge(ack, False)
        if was_pending:
            try:
                self.events.terminated(
                    ack.sequence, ack.consumer_sequence, count, reason.decode(errors="replace")
                )
            except Exception:
                self.failed()
        return is_answered

    cdef int lose(self, uint64_t sequence) except -1:
        """Take out a pending message that is gone from the stream.

        With ack all, only the first pending message can be taken out; later ones are acknowledged
        with it.
        """
        cdef Py_ssize_t index = self.tracker.find(sequence)
        cdef uint64_t consumer, count
        if index < 0:
            if len(self.tracker.redelivered) and sequence in self.tracker.redelivered:
                self.tracker.acknowledge(0, sequence)
            return 0
        if self.tracker.ack_policy != POLICY_EXPLICIT and index != self.tracker.head:
            return self.redelivery.dequeue(sequence)
        consumer, count = self.tracker.items[index].consumer, self.deliveries(sequence)
        self.was_acked = True
        self.tracker.acknowledge(consumer, sequence)
        self.redelivery.forget(sequence)
        try:
            self.events.terminated(sequence, consumer, count, LOST)
        except Exception:
            self.failed()
        return 0

    cdef bint lose_front(self, MessageLog log, Py_ssize_t budget) except? -1:
        cdef ConsumerTracker tracker = self.tracker
        # Counts of messages that were delivered too often are kept until the messages are removed.
        if log.edges.first > self.pruned_at + max(len(tracker.redelivered), PRUNED_MIN):
            self.pruned_at = log.edges.first
            tracker.remove_redelivered_below(log.edges.first)
        while tracker.pending_count and tracker.items[tracker.head].stream < log.edges.first:
            if budget == 0:
                return True
            self.lose(tracker.items[tracker.head].stream)
            budget -= 1
        return False

    cdef bint lose_inside(self, MessageLog log, Py_ssize_t budget) except? -1:
        cdef uint64_t gone = log.edges.last - log.msgs      # this number only grows
        cdef Py_ssize_t at
        cdef list lost = []
        if gone == self.seen_gone:
            return False
        at = self.tracker.lower_bound(self.lost_from)
        while at < self.tracker.tail and budget > 0:
            self.lost_from = self.tracker.items[at].stream + 1
            if self.tracker.items[at].consumer and not log.is_here(self.lost_from - 1):
                lost.append(self.lost_from - 1)
            at += 1
            budget -= 1
        for sequence in lost:
            self.lose(sequence)
        if budget == 0:
            return True
        self.lost_from = 0
        self.seen_gone = gone
        return False

    # Dead letters

    cdef int settle(self, uint64_t sequence) except -1:
        cdef Py_ssize_t index = self.tracker.find(sequence)
        if index < 0:
            return 0
        self.tracker.acknowledge(self.tracker.items[index].consumer, sequence)
        self.redelivery.forget(sequence)
        return self.release(sequence)

    cdef int give_up_letters(self) except -1:
        cdef set parked = self.redelivery.parked or set()
        self.redelivery.follow(self.redelivery.keyed, None)
        for sequence in sorted(self.tracker.terminated or ()):
            self.settle(sequence)
        for sequence in sorted(parked):
            if self.tracker.find(sequence) >= 0:
                self.redelivery.drop(sequence)
        return 0

    cdef uint64_t deliveries(self, uint64_t sequence) except 0:
        if not len(self.tracker.redelivered):
            return 1
        return 1 + <uint64_t> self.tracker.redelivered.get(sequence, 0)

    cdef int failed(self) except -1:
        self.scheduler.reactor.log_failure("an event of a consumer could not be told")
        return 0

    # Messages that the stream may remove

    cdef int release(self, uint64_t sequence) except -1:
        cdef Py_ssize_t used = self.released_tail - self.released_head, capacity
        cdef uint64_t* grown
        if self.stream.retention == LIMITS:
            return 0
        if self.released_tail == self.released_capacity:
            if self.released_head:
                memmove(
                    self.released, &self.released[self.released_head], used * sizeof(uint64_t)
                )
                self.released_head, self.released_tail = 0, used
            if 2 * used >= self.released_capacity:
                capacity = max(<Py_ssize_t> RELEASED_CAPACITY_MIN, 2 * self.released_capacity)
                grown = <uint64_t*> realloc(self.released, capacity * sizeof(uint64_t))
                if grown == NULL:
                    raise MemoryError
                self.released = grown
                self.released_capacity = capacity
        self.released[self.released_tail] = sequence
        self.released_tail += 1
        return 0
