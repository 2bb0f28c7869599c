"""WriteBackpressure: slows publishers down by the messages that are appended and not durable yet.

    below the limits   nothing
    over them          the publisher's connection is not read until a commit makes room, or for
                       PATIENCE_NS in all while none does
    over them twice    publishes are refused with 429

Promise
- Messages are counted exactly, bytes to MARK_BYTES; memory is bounded by the limits.
- It is a Recipient, so that a connection whose message went to it waits for it as for a connection
  that is slow (`Reactor.congested`).

Source: docs/store.md; the options `max_buffered_msgs` and `max_buffered_size` of nats-server 2.14.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc

from natsd.core.network cimport Reactor, Recipient, monotonic_ns
from natsd.jetstream.stream.checks cimport AckQueue

cdef enum:
    MARK_BYTES = 64 * 1024
    MARKS_MIN = 16
    ANSWER_BYTES_MAX = 4 << 20  # bytes of answers that wait
    REPUBLISHED_MAX = 65_536    # messages that wait to be republished

cdef int64_t PATIENCE_NS = 1_000_000_000


cdef class WriteBackpressure(Recipient):
    def __init__(
        self, Reactor reactor, uint64_t msgs_max, uint64_t bytes_max, uint64_t durable,
        AckQueue acks, Republisher republisher,
    ):
        self.reactor = reactor
        self.acks = acks
        self.republisher = republisher
        self.msgs_max = msgs_max
        self.bytes_max = bytes_max
        self.last = self.durable = durable

    def __dealloc__(self):
        free(self.marks)

    cdef Pressure pressure(self) noexcept nogil:
        cdef uint64_t msgs = self.last - self.durable
        cdef uint64_t size = self.total - self.total_durable
        cdef uint64_t answers = self.acks.size()
        if self.republisher is not None and self.republisher.waiting() > REPUBLISHED_MAX:
            return FULL if self.republisher.waiting() > 2 * REPUBLISHED_MAX else OVER
        if msgs <= self.msgs_max and size <= self.bytes_max and answers <= ANSWER_BYTES_MAX:
            return ROOM
        if (
            msgs > 2 * self.msgs_max or size > 2 * self.bytes_max
            or answers > 2 * ANSWER_BYTES_MAX
        ):
            return FULL
        return OVER

    cdef int note(self, uint64_t sequence, uint64_t size) except -1:
        """Count a message that was appended: its sequence and its size in bytes."""
        self.last = sequence
        self.total += size
        if (
            self.head == self.tail
            or self.total - self.marks[(self.tail - 1) & self.marks_mask].total >= MARK_BYTES
        ):
            if self.marks == NULL or self.tail - self.head > self.marks_mask:
                self.grow()
            self.marks[self.tail & self.marks_mask] = BacklogMark(sequence, self.total)
            self.tail += 1
        return 0

    cdef int grow(self) except -1:
        cdef uint64_t room = 2 * (self.marks_mask + 1) if self.marks != NULL else MARKS_MIN
        cdef BacklogMark* marks = <BacklogMark*> malloc(room * sizeof(BacklogMark))
        cdef uint64_t at
        if marks == NULL:
            raise MemoryError()
        for at in range(self.head, self.tail):
            marks[at & (room - 1)] = self.marks[at & self.marks_mask]
        free(self.marks)
        self.marks = marks
        self.marks_mask = room - 1
        return 0

    cdef int settle(self, uint64_t durable) except -1:
        """Note that everything up to `durable` is durable.

        Messages above that were rolled back must be noted anew.
        """
        cdef BacklogMark* mark
        self.durable = durable
        while self.head < self.tail:
            mark = &self.marks[self.head & self.marks_mask]
            if mark.sequence > durable:
                break
            self.total_durable = mark.total
            self.head += 1
        if durable >= self.last:
            self.last = durable
            self.total_durable = self.total
            self.head = self.tail
        if self.over_since_ns and self.pressure() == ROOM:
            self.over_since_ns = 0
            self.reactor.drained()
        return 0

    cdef int roll_back(self, uint64_t durable) except -1:
        """Forget the messages above `durable`: a failed commit took them back."""
        self.last = durable
        return self.settle(durable)

    cdef int64_t stall_for(self, int64_t* waited_ns) except -1:
        cdef int64_t now_ns = monotonic_ns()
        if self.pressure() == ROOM:
            return 0
        if self.over_since_ns == 0:
            self.over_since_ns = now_ns
        return max(<int64_t> 0, self.over_since_ns + PATIENCE_NS - now_ns)
