"""The messages that a consumer delivers again, and when.

Everything follows from the tracker's state, so that it is known after a restart too:

    deadline of a pending message = its time in the tracker + wait(how often it was delivered)

The time is that of the last delivery; `+WPI` and a NAK with a delay move it. So the deadlines need
no storage of their own, only an order in which to examine them:

    tracker    ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪        pending, by stream sequence
                         ▲ front: from here on, what has no hint was delivered once, in order, and
                           its deadline is not before that of its predecessor: nothing to note
    hints      a heap    everything else that waits: redelivered, moved, restored out of order
    queue      ▪▪▪       what is due; delivered before anything new

Invariants
- A pending message is in `queued`, or has one valid hint that is not later than its deadline, or
  lies at or behind `front`, delivered once and never moved; or it is `parked`, a dead letter.
- A hint is valid if `hinted` says so. Others are removed, two for each new one, so there are never
  many more hints than messages with a hint.
- A first delivery and an acknowledgement of a message without a hint touch nothing here.

No clock is read here. Source: nats-server's `checkPending` for the order of messages that are due,
and `processNak` and `progressUpdate`.
"""

from collections import deque

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, qsort, realloc

from natsd.store.consumer.tracking cimport ConsumerTracker

cdef extern from *:
    """
    #define NATSD_NEVER INT64_MAX
    """
    int64_t NEVER "NATSD_NEVER"

cdef enum:
    REDELIVERY_CAPACITY_MIN = 16
    SWEPT_PER_HINT = 2
    STALE_MIN = 64              # fewer hints than that are not swept


cdef inline int64_t later(int64_t time_ns, int64_t wait_ns) noexcept nogil:
    """Return the sum, or the latest time that can be represented."""
    if wait_ns > 0 and time_ns > NEVER - wait_ns:
        return NEVER
    return time_ns + wait_ns


cdef int by_sequence(const void* a, const void* b) noexcept nogil:
    cdef uint64_t x = (<const Due*> a).sequence, y = (<const Due*> b).sequence
    return (x > y) - (x < y)


cdef class Redelivery:
    def __cinit__(self, ConsumerTracker tracker not None, exceeded):
        """Keep `exceeded(sequence, deliveries)`, told of messages delivered too often."""
        self.tracker = tracker
        self.exceeded = exceeded
        self.hinted = {}
        self.queued = {}

    def __dealloc__(self):
        free(self.hints)
        free(self.queue)
        free(self.backoff_ns)

    cdef int configure(self, int64_t ack_wait_ns, tuple backoff_ns) except -1:
        cdef Py_ssize_t at
        cdef int64_t* waits = NULL
        if backoff_ns:
            waits = <int64_t*> realloc(NULL, len(backoff_ns) * sizeof(int64_t))
            if waits == NULL:
                raise MemoryError
            for at in range(len(backoff_ns)):
                waits[at] = backoff_ns[at]
        free(self.backoff_ns)
        self.backoff_ns = waits
        self.backoff_count = len(backoff_ns)
        self.ack_wait_ns = ack_wait_ns
        for sequence in list(self.hinted):      # their hints rest on the earlier waits
            self.moved(sequence)
        return 0

    cdef int restore(self) except -1:
        """Begin with the tracker's state, as after a restart."""
        cdef Py_ssize_t at
        cdef int64_t latest = 0
        self.hint_count = self.queue_head = self.queue_tail = 0
        self.hinted.clear()
        self.queued.clear()
        self.front = 0
        if self.letters is not None:
            self.parked.clear()
            self.dead_letters.clear()
            self.letters.clear()
        for at in range(self.tracker.head, self.tracker.tail):
            if self.tracker.items[at].consumer == 0:
                continue
            sequence = self.tracker.items[at].stream
            if self.letters is not None and sequence in (self.tracker.terminated or ()):
                self.park(sequence, b"")
            elif self.tracker.items[at].time_ns < latest or sequence in self.tracker.redelivered:
                self.moved(sequence)
            else:
                latest = self.tracker.items[at].time_ns
        self.latest_ns = latest
        return 0

    # Changes of messages

    cdef int delivered(self, uint64_t sequence, uint64_t count, int64_t now_ns) except -1:
        if (
            count == 1 and now_ns >= self.latest_ns and sequence >= self.front
            and sequence == self.tracker.items[self.tracker.tail - 1].stream
        ):
            self.latest_ns = now_ns
            return 0
        return self.hint(sequence, later(now_ns, self.wait_ns(sequence)))

    cdef int moved(self, uint64_t sequence) except -1:
        cdef Py_ssize_t index = self.tracker.find(sequence)
        assert index >= 0
        return self.hint(
            sequence, later(self.tracker.items[index].time_ns, self.wait_ns(sequence))
        )

    cdef int forget(self, uint64_t sequence) except -1:
        if len(self.hinted):
            self.hinted.pop(sequence, None)
        if len(self.queued):
            self.queued.pop(sequence, None)
        if self.is_followed:
            if self.parked is not None:
                self.parked.discard(sequence)
            if self.keyed is not None:
                self.keyed.settled(sequence)
        return 0

    cdef int forget_through(self, uint64_t sequence) except -1:
        """Note that no message up to that one is pending any more."""
        for known in [known for known in self.hinted if known <= sequence]:
            del self.hinted[known]
        for known in [known for known in self.queued if known <= sequence]:
            del self.queued[known]
        return 0

    # Waiting

    cdef int64_t wait_ns(self, uint64_t sequence) except -1:
        cdef uint64_t redeliveries = 0
        if self.backoff_count == 0:
            return self.ack_wait_ns
        if len(self.tracker.redelivered):
            redeliveries = self.tracker.redelivered.get(sequence, 0)
        return self.backoff_ns[min(redeliveries, <uint64_t> self.backoff_count - 1)]

    cdef bint collect(self, int64_t now_ns, Py_ssize_t budget) except -1:
        cdef Py_ssize_t index, added = -len(self.queued)
        cdef uint64_t sequence
        while budget > 0 and self.hint_count and self.hints[0].due_ns <= now_ns:
            budget -= 1
            sequence = self.hints[0].sequence
            if not self.is_stale(0):
                del self.hinted[sequence]
                index = self.tracker.find(sequence)
                due_ns = later(self.tracker.items[index].time_ns, self.wait_ns(sequence))
                self.remove_hint(0)
                if due_ns > now_ns:
                    self.hint(sequence, due_ns)
                else:
                    self.expire(index)
            else:
                self.remove_hint(0)
        while budget > 0:
            budget -= 1
            index = self.first_without_hint()
            if index < 0:
                break
            sequence = self.tracker.items[index].stream
            if later(self.tracker.items[index].time_ns, self.wait_ns(sequence)) > now_ns:
                break
            self.front = sequence + 1
            self.expire(index)
        added += len(self.queued)
        if added > 1:
            qsort(&self.queue[self.queue_tail - added], added, sizeof(Due), by_sequence)
        return budget == 0

    cdef int64_t next_due_ns(self) except -1:
        cdef Py_ssize_t index
        cdef int64_t due_ns = self.hints[0].due_ns if self.hint_count else 0, natural_ns
        if self.tracker.pending_count == 0:
            return 0
        index = self.first_without_hint()
        if index >= 0:
            natural_ns = later(
                self.tracker.items[index].time_ns, self.wait_ns(self.tracker.items[index].stream)
            )
            if due_ns == 0 or natural_ns < due_ns:
                due_ns = natural_ns
        return due_ns

    cdef int expire(self, Py_ssize_t index) except -1:
        cdef uint64_t sequence = self.tracker.items[index].stream
        cdef uint64_t deliveries = 1
        if self.tracker.max_deliver:
            deliveries = 1 + <uint64_t> self.tracker.redelivered.get(sequence, 0)
            if deliveries >= self.tracker.max_deliver:
                return self.exceed(sequence)
        return self.enqueue(sequence)

    cdef int exceed(self, uint64_t sequence) except -1:
        cdef uint64_t deliveries = 1 + <uint64_t> self.tracker.redelivered.get(sequence, 0)
        if self.letters is None:
            self.drop(sequence)
        else:
            self.park(sequence, None)
        self.exceeded(sequence, deliveries)
        return 0

    cdef int drop(self, uint64_t sequence) except -1:
        cdef Py_ssize_t index = self.tracker.find(sequence)
        cdef uint64_t deliveries = 1 + <uint64_t> self.tracker.redelivered.get(sequence, 0)
        self.tracker.update_delivered(
            self.tracker.items[index].consumer, sequence,
            max(deliveries, self.tracker.max_deliver) + 1, self.tracker.items[index].time_ns,
        )
        return self.forget(sequence)

    # Dead letters, and the objects that are told of settled messages

    cdef int follow(self, KeyedPendingCursor keyed, letters) except -1:
        self.keyed = keyed
        self.letters = letters
        if letters is None:
            self.parked = self.dead_letters = None
        elif self.parked is None:
            self.parked, self.dead_letters = set(), deque()
        self.is_followed = keyed is not None or letters is not None
        return 0

    cdef int park(self, uint64_t sequence, bytes text) except -1:
        if sequence in self.parked:
            return 0
        self.hinted.pop(sequence, None)
        self.queued.pop(sequence, None)
        self.parked.add(sequence)
        self.dead_letters.append((self.tracker.change_count, sequence, text))
        return 0

    cdef int hand_over_dead_letters(self, uint64_t durable) except -1:
        while self.dead_letters and self.dead_letters[0][0] <= durable:
            _, sequence, text = self.dead_letters.popleft()
            self.letters.add(sequence, text)
        return 0

    cdef uint64_t dead_letters_since(self) except? 0:
        return self.dead_letters[-1][0] if self.dead_letters else 0

    cdef bint is_parked(self, uint64_t sequence) except -1:
        return self.parked is not None and sequence in self.parked

    cdef bint is_spent(self, uint64_t sequence) except -1:
        """Tell whether a message, with dead letters, may not be delivered any more.

        A message that was delivered as often as allowed is made a dead letter here.
        """
        if sequence in self.parked:
            return True
        if self.tracker.max_deliver == 0 or (
            1 + <uint64_t> self.tracker.redelivered.get(sequence, 0) < self.tracker.max_deliver
        ):
            return False
        self.exceed(sequence)
        return True

    cdef Py_ssize_t first_without_hint(self) except -2:
        """Return the index of the first message without a hint or queue entry; -1: none."""
        cdef Py_ssize_t at = self.tracker.lower_bound(self.front)
        cdef uint64_t sequence
        while at < self.tracker.tail:
            sequence = self.tracker.items[at].stream
            if self.tracker.items[at].consumer:
                if not (len(self.hinted) and sequence in self.hinted) and not (
                    len(self.queued) and sequence in self.queued
                ) and not self.is_parked(sequence):
                    return at
                self.front = sequence + 1
            at += 1
        return -1

    # The hints

    cdef int hint(self, uint64_t sequence, int64_t due_ns) except -1:
        cdef Hint* grown
        cdef Py_ssize_t capacity
        known = self.hinted.get(sequence)
        if known is not None and known <= due_ns:
            return 0
        self.sweep_hints()
        if self.hint_count == self.hint_capacity:
            capacity = max(<Py_ssize_t> REDELIVERY_CAPACITY_MIN, 2 * self.hint_capacity)
            grown = <Hint*> realloc(self.hints, capacity * sizeof(Hint))
            if grown == NULL:
                raise MemoryError
            self.hints = grown
            self.hint_capacity = capacity
        self.hinted[sequence] = due_ns
        self.hints[self.hint_count].due_ns = due_ns
        self.hints[self.hint_count].sequence = sequence
        self.hint_count += 1
        self.sift_up(self.hint_count - 1)
        return 0

    cdef bint is_stale(self, Py_ssize_t at) except -1:
        """Tell whether a hint is outdated: replaced, or its message is settled or queued."""
        cdef uint64_t sequence = self.hints[at].sequence
        if self.hinted.get(sequence) != self.hints[at].due_ns:
            return True
        if self.tracker.find(sequence) < 0 or sequence in self.queued:
            del self.hinted[sequence]
            return True
        return False

    cdef int sweep_hints(self) except -1:
        if self.hint_count <= STALE_MIN + 2 * len(self.hinted):
            return 0
        for _ in range(SWEPT_PER_HINT + 1):
            if self.sweep_at >= self.hint_count:
                self.sweep_at = 0
            if self.hint_count and self.is_stale(self.sweep_at):
                self.remove_hint(self.sweep_at)
            else:
                self.sweep_at += 1
        return 0

    cdef void remove_hint(self, Py_ssize_t at) noexcept nogil:
        self.hint_count = self.hint_count - 1
        if at == self.hint_count:
            return
        self.hints[at] = self.hints[self.hint_count]
        self.sift_up(at)
        self.sift_down(at)

    cdef void sift_up(self, Py_ssize_t at) noexcept nogil:
        cdef Hint moving = self.hints[at]
        cdef Py_ssize_t above
        while at > 0:
            above = (at - 1) // 2
            if self.hints[above].due_ns <= moving.due_ns:
                break
            self.hints[at] = self.hints[above]
            at = above
        self.hints[at] = moving

    cdef void sift_down(self, Py_ssize_t at) noexcept nogil:
        cdef Hint moving = self.hints[at]
        cdef Py_ssize_t below
        while True:
            below = 2 * at + 1
            if below >= self.hint_count:
                break
            if (
                below + 1 < self.hint_count
                and self.hints[below + 1].due_ns < self.hints[below].due_ns
            ):
                below += 1
            if moving.due_ns <= self.hints[below].due_ns:
                break
            self.hints[at] = self.hints[below]
            at = below
        self.hints[at] = moving

    # The queue

    cdef int enqueue(self, uint64_t sequence) except -1:
        if sequence in self.queued or self.letters is not None and self.is_spent(sequence):
            return 0
        if self.queue_tail == self.queue_capacity:
            self.make_queue_room()
        self.stamps += 1
        self.queued[sequence] = self.stamps
        self.queue[self.queue_tail].sequence = sequence
        self.queue[self.queue_tail].stamp = self.stamps
        self.queue_tail += 1
        return 0

    cdef int enqueue_all(self) except -1:
        cdef Py_ssize_t index
        for index in range(self.tracker.head, self.tracker.tail):
            if self.tracker.items[index].consumer:
                self.enqueue(self.tracker.items[index].stream)
        return 0

    cdef int dequeue(self, uint64_t sequence) except -1:
        if len(self.queued):
            self.queued.pop(sequence, None)
        return 0

    cdef bint is_valid(self, Due* due) except -1:
        return self.queued.get(due.sequence, 0) == due.stamp

    cdef uint64_t next_queued(self) except? 0:
        while len(self.queued) and self.queue_head < self.queue_tail:
            if self.is_valid(&self.queue[self.queue_head]):
                return self.queue[self.queue_head].sequence
            self.queue_head += 1
        self.queue_head = self.queue_tail = 0
        return 0

    cdef int make_queue_room(self) except -1:
        """Make room for one more entry: remove invalid ones, or double the room."""
        cdef Py_ssize_t at, to = 0, capacity
        cdef Due* grown
        for at in range(self.queue_head, self.queue_tail):
            if self.is_valid(&self.queue[at]):
                self.queue[to] = self.queue[at]
                to += 1
        self.queue_head, self.queue_tail = 0, to
        if 2 * to <= self.queue_capacity and to < self.queue_capacity:
            return 0
        capacity = max(<Py_ssize_t> REDELIVERY_CAPACITY_MIN, 2 * self.queue_capacity)
        grown = <Due*> realloc(self.queue, capacity * sizeof(Due))
        if grown == NULL:
            raise MemoryError
        self.queue = grown
        self.queue_capacity = capacity
        return 0

    @property
    def num_hints(self):
        """Number of hints, for tests."""
        return self.hint_count
