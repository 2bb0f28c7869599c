"""The state of one consumer: what was delivered, what waits for its ack. No files, no clock.

    floor                                                     delivered
      │   items (by stream sequence; `consumer` 0: acked)          │
      ▼   ┌────────┬────────┬────────┬────────┬────────┬────────┐  ▼
          │ 7 ▸ 3  │  acked │ 9 ▸ 5  │ 12 ▸ 6 │  acked │ 15 ▸ 8 │
          └────────┴────────┴────────┴────────┴────────┴────────┘
           head: always pending                tail - 1: as well

Invariants
- First deliveries come in stream order, so `items` is sorted: found by its place where there are
  no gaps, else by bisection. Acknowledged ones are dropped at either end at once, and from between
  when they are more than half. 24 bytes a pending message, and no Python object.
- floor <= every pending message <= delivered, in stream sequences; `head` is the lowest.
- What is `held` was read and is delivered later than what lies behind it: it too lies between floor
  and delivered, and is inserted in `items` when it is delivered. While there ever was such a
  message, the floor's consumer sequence is brought up to date when it is asked for, since the
  lowest of the pending ones is then not `head`'s.
- Every change that takes effect is one entry of `changes` while `logging`; replaying the entries
  on the state before gives the state after. `on_change` is called at the first of them, and at
  every change while nothing is logged.

The rules are those of nats-server's consumer file store (UpdateDelivered, UpdateAcks): with
explicit acks the floor rises when the message right above it is acked, up to below the next pending
one, or to what was delivered when nothing is pending.
"""

import struct
from itertools import chain

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from natsd.store.consumer_log cimport (
    ACKED, DELIVERED, DROPPED, FORGOTTEN, HELD, LET_GO, SKIPPED, SLOT_BYTES, TERMINATED,
    EntryBuffer, Slot, read_slot,
)
from natsd.store.record cimport read_u64, write_u64
from natsd.store.sequence_set cimport SequenceSet

from natsd.store.consumer_state import AckPolicy, ConsumerState, Pending, SequencePair
from natsd.store.errors import DamagedEncoding, MessageNotFound, NoAckPolicy, OldUpdate

cdef enum:
    POLICY_NONE = 0
    POLICY_EXPLICIT = 2
    POLICY_MAX = 3
    CAPACITY_MIN = 16
    COMPACT_MIN = 64            # below that many items nothing is moved
    ENCODED_HEADER_BYTES = 64
    ENCODED_PENDING_BYTES = 24
    ENCODED_REDELIVERED_BYTES = 16
    ENCODED_RUN_BYTES = 16
    ENCODED_TERMINATED_BYTES = 8
    ENCODING_IN_ORDER = 1       # of a state in which nothing was ever held or terminated
    ENCODING_VERSION = 2
    ENCODED_COUNTS_BYTES = 16   # of the runs and the terminated ones, from then on

assert POLICY_NONE == AckPolicy.NONE and POLICY_EXPLICIT == AckPolicy.EXPLICIT
assert POLICY_MAX == max(AckPolicy)


cdef class ConsumerTracker:
    """One consumer's state. Sequences start at 1; 0 stands for none."""

    def __init__(self, ack_policy, max_deliver=0, on_change=None) -> None:
        self.ack_policy = ack_policy
        self.max_deliver = max(max_deliver, 0)
        self.on_change = on_change
        self.redelivered = {}
        self.changes = EntryBuffer()
        self.logging = False

    def __dealloc__(self) -> None:
        free(self.items)

    # Changes

    cpdef update_delivered(
        self, uint64_t consumer, uint64_t stream, uint64_t count, int64_t time_ns
    ):
        """A message was sent, for the `count`-th time; `consumer` counts all deliveries.

        Raises `NoAckPolicy` for a second delivery where there are no acks. What is at or below the
        floor, as when a replicated log is replayed, is ignored.
        """
        if count != 1 and self.ack_policy == POLICY_NONE:
            raise NoAckPolicy
        if consumer <= self.floor_consumer:
            return
        cdef bint drop = self.max_deliver > 0 and count > self.max_deliver
        self.log(DELIVERED, DROPPED if drop else 0, count, consumer, stream, time_ns)
        self.deliver(consumer, stream, count, time_ns, drop)

    cpdef update_acks(self, uint64_t consumer, uint64_t stream):
        """A message was acknowledged or terminated; with `AckPolicy.ALL`, all before it too.

        Raises `NoAckPolicy`, and `MessageNotFound` if it is not pending; what is at or below the
        floor is ignored.
        """
        if self.ack_policy == POLICY_NONE:
            raise NoAckPolicy
        if self.acknowledge(consumer, stream) == ACK_UNKNOWN:
            raise MessageNotFound

    cdef AckResult acknowledge(self, uint64_t consumer, uint64_t stream) except *:
        """`update_acks` for compiled callers, without its exceptions; MemoryError remains."""
        cdef Py_ssize_t index
        cdef bint forgets = len(self.redelivered) > 0 and stream in self.redelivered
        if consumer <= self.floor_consumer:
            if forgets:
                self.log(ACKED, 0, 0, consumer, stream, 0)
                del self.redelivered[stream]
            return ACK_IGNORED
        index = self.find(stream)
        if forgets or index >= 0:
            self.log(ACKED, 0, 0, consumer, stream, 0)
        if forgets:
            del self.redelivered[stream]
        if index < 0:
            return ACK_UNKNOWN
        if self.terminated is not None:
            self.terminated.discard(stream)
        if self.ack_policy == POLICY_EXPLICIT:
            return self.acknowledge_one(index)
        self.acknowledge_up_to(consumer, stream)
        return ACK_TAKEN

    cdef AckResult acknowledge_one(self, Py_ssize_t index) noexcept:
        self.drop_pending(index)
        return ACK_TAKEN

    cdef void drop_pending(self, Py_ssize_t index) noexcept:
        # By its first delivery: an ack may name a later one.
        cdef uint64_t consumer = self.items[index].consumer, stream = self.items[index].stream
        self.remove(index)
        if self.held is not None:
            self.raise_floor()
        elif self.pending_count == 0:
            self.floor_consumer = self.delivered_consumer
            self.floor_stream = self.delivered_stream
        elif consumer == self.floor_consumer + 1:
            self.floor_consumer = consumer
            self.floor_stream = stream
            if self.delivered_consumer > consumer:
                assert self.items[self.head].stream > stream
                self.floor_consumer = self.items[self.head].consumer - 1
                self.floor_stream = self.items[self.head].stream - 1

    cdef void raise_floor(self) noexcept nogil:
        """To below the lowest that is pending or held: where not all is delivered in order."""
        cdef uint64_t lowest = 0, held = 0
        if self.pending_count:
            lowest = self.items[self.head].stream
        else:
            self.floor_consumer = self.delivered_consumer
        if self.held.find_present(1, &held) and (lowest == 0 or held < lowest):
            lowest = held
        self.floor_stream = max(self.floor_stream, lowest - 1 if lowest else self.delivered_stream)

    def settle_floor(self) -> None:
        """Bring `floor_consumer` up to date, which costs a look at all that is pending."""
        cdef uint64_t lowest = self.delivered_consumer + 1
        cdef Py_ssize_t at
        if self.held is None:
            return
        for at in range(self.head, self.tail):
            if 0 < self.items[at].consumer < lowest:
                lowest = self.items[at].consumer
        self.floor_consumer = lowest - 1

    cdef int acknowledge_up_to(self, uint64_t consumer, uint64_t stream) except -1:
        cdef uint64_t passed
        while self.pending_count and self.items[self.head].stream <= stream:
            passed = self.items[self.head].stream
            if len(self.redelivered):
                self.redelivered.pop(passed, None)
            self.remove(self.head)
        self.floor_consumer = min(consumer, self.delivered_consumer)
        self.floor_stream = stream
        return 0

    cdef int deliver(
        self, uint64_t consumer, uint64_t stream, uint64_t count, int64_t time_ns, bint drop
    ) except -1:
        cdef Py_ssize_t index
        if self.ack_policy == POLICY_NONE:
            if consumer > self.delivered_consumer:
                self.delivered_consumer = self.floor_consumer = consumer
            if stream > self.delivered_stream:
                self.delivered_stream = self.floor_stream = stream
            return 0
        if stream > self.delivered_stream:
            self.append(stream, consumer, time_ns)
            self.delivered_stream = stream
        else:
            index = self.find(stream)
            if index >= 0:
                self.items[index].time_ns = time_ns
            elif self.held is not None and self.held.discard_run(stream, stream):
                self.insert(stream, consumer, time_ns)
        self.delivered_consumer = max(consumer, self.delivered_consumer)
        if count > 1:
            if drop:
                index = self.find(stream)
                if index >= 0:      # the floor must not wait for it
                    if self.terminated is not None:
                        self.terminated.discard(stream)
                    self.drop_pending(index)
            self.count_redelivery(stream, count - 1)
        return 0

    cdef int count_redelivery(self, uint64_t stream, uint64_t count) except -1:
        if count > <uint64_t> self.redelivered.get(stream, 0):
            self.redelivered[stream] = count
        return 0

    def update_starting(self, uint64_t stream) -> None:
        """Nothing up to that stream sequence is to be delivered: a gap was skipped."""
        if self.held is not None and stream > 0 and self.held.count_through(stream):
            self.let_go(1, stream)
        if stream <= self.delivered_stream:
            return
        self.log(SKIPPED, 0, 0, stream, 0, 0)
        self.delivered_stream = stream
        if self.held is not None:
            self.raise_floor()
            return
        if self.ack_policy == POLICY_NONE or (self.pending_count == 0 and not self.redelivered):
            self.floor_stream = stream
            self.floor_consumer = self.delivered_consumer

    cpdef hold(self, uint64_t first, uint64_t last):
        """This run was read, and what lies behind it is delivered sooner. Explicit acks only."""
        assert self.ack_policy == POLICY_EXPLICIT and self.delivered_stream < first <= last
        self.log(HELD, 0, 0, first, last, 0)
        self.take_held(first, last)

    cdef int take_held(self, uint64_t first, uint64_t last) except -1:
        if self.held is None:
            self.held = SequenceSet()
        self.held.add_run(first, last)
        self.delivered_stream = max(self.delivered_stream, last)
        self.raise_floor()
        return 0

    cpdef let_go(self, uint64_t first, uint64_t last):
        """What is held of this run is not to be delivered any more: it is gone, or unwanted."""
        if self.held is not None and self.held.discard_run(first, last):
            self.log(LET_GO, 0, 0, first, last, 0)
            self.raise_floor()

    cpdef terminate(self, uint64_t stream):
        """A pending message is never to be delivered again, and not acknowledged yet either."""
        if self.find(stream) < 0 or self.terminated is not None and stream in self.terminated:
            return
        self.log(TERMINATED, 0, 0, stream, 0, 0)
        if self.terminated is None:
            self.terminated = set()
        self.terminated.add(stream)

    def remove_redelivered_below(self, uint64_t stream) -> None:
        """Forget how often messages were delivered that the stream no longer holds."""
        gone = [sequence for sequence in self.redelivered if sequence < stream]
        if gone:
            self.log(FORGOTTEN, 0, 0, stream, 0, 0)
            for sequence in gone:
                del self.redelivered[sequence]

    # Whole states: no entry says them, so the log must begin anew

    def set_starting(self, uint64_t stream) -> None:
        """The first message to deliver is the one behind that stream sequence; none is pending."""
        assert not self.logging
        self.change_count += 1
        self.head = self.tail = self.pending_count = 0
        self.redelivered = {}
        self.held = None
        self.terminated = None
        self.floor_consumer = self.delivered_consumer
        self.delivered_stream = self.floor_stream = stream

    def replace(self, state: ConsumerState) -> None:
        """Become `state`, which is valid."""
        assert not self.logging
        self.change_count += 1
        self.head = self.tail = self.pending_count = 0
        self.reserve(len(state.pending))
        for stream in sorted(state.pending):
            self.append(stream, state.pending[stream].sequence, state.pending[stream].time_ns)
        self.redelivered = dict(state.redelivered)
        self.terminated = set(state.terminated) or None
        self.held = None
        if state.held is not None:
            self.held = SequenceSet()
            for first, last in state.held:
                self.held.add_run(first, last)
        self.delivered_consumer = state.delivered.consumer
        self.delivered_stream = state.delivered.stream
        self.floor_consumer = state.ack_floor.consumer
        self.floor_stream = state.ack_floor.stream

    def check_newer(self, state: ConsumerState) -> None:
        """Raise OldUpdate if `state` is behind this one."""
        if (
            state.delivered.consumer < self.delivered_consumer
            or state.ack_floor.stream < self.floor_stream
        ):
            raise OldUpdate

    # What can be asked

    def state(self) -> ConsumerState:
        """A copy of everything; what a million pending messages take, it takes."""
        cdef Py_ssize_t at
        cdef dict pending = {}
        self.settle_floor()
        for at in range(self.head, self.tail):
            if self.items[at].consumer:
                pending[self.items[at].stream] = Pending(
                    self.items[at].consumer, self.items[at].time_ns
                )
        return ConsumerState(
            SequencePair(self.delivered_consumer, self.delivered_stream),
            SequencePair(self.floor_consumer, self.floor_stream),
            pending,
            dict(self.redelivered),
            None if self.held is None else tuple(self.held.runs()),
            frozenset(self.terminated or ()),
        )

    def pending(self, uint64_t stream) -> Pending | None:
        """What waits for its ack under that stream sequence."""
        cdef Py_ssize_t index = self.find(stream)
        if index < 0:
            return None
        return Pending(self.items[index].consumer, self.items[index].time_ns)

    def first_pending(self) -> int:
        """The lowest stream sequence that waits for its ack, or 0."""
        return self.items[self.head].stream if self.pending_count else 0

    # The log

    def listen(self, on_change) -> None:
        """Whom to call at the first change after `changes` was emptied."""
        self.on_change = on_change

    def start_logging(self, uint64_t change_count) -> None:
        """From here on every change becomes an entry; `change_count` came before."""
        self.changes.clear()
        self.change_count = change_count
        self.logging = True

    def stop_logging(self) -> None:
        """Drop the entries: a checkpoint will say what they say."""
        self.changes.clear()
        self.logging = False

    cdef int log(
        self, int kind, int flags, uint64_t count, uint64_t a, uint64_t b, int64_t c
    ) except -1:
        self.change_count += 1
        if self.logging:
            self.changes.add(kind, flags, count, a, b, <uint64_t> c)
        if self.on_change is not None and self.changes.count <= 1:
            self.on_change()
        return 0

    def replay(self, entries: bytes | bytearray) -> None:
        """Do what whole entries say, in order; nothing is logged."""
        cdef bytes copy = bytes(entries)
        cdef const unsigned char* at = <const unsigned char*> PyBytes_AS_STRING(copy)
        cdef Py_ssize_t index
        cdef Slot slot
        assert not self.logging
        for index in range(len(copy) // SLOT_BYTES):
            read_slot(at + index * SLOT_BYTES, &slot)
            if slot.kind == DELIVERED:
                self.deliver(slot.a, slot.b, slot.count, <int64_t> slot.c, slot.flags & DROPPED)
            elif slot.kind == ACKED:
                self.acknowledge(slot.a, slot.b)
            elif slot.kind == SKIPPED:
                self.update_starting(slot.a)
            elif slot.kind == FORGOTTEN:
                self.remove_redelivered_below(slot.a)
            elif slot.kind == HELD:
                self.take_held(slot.a, slot.b)
            elif slot.kind == LET_GO:
                self.let_go(slot.a, slot.b)
            elif slot.kind == TERMINATED:
                self.terminate(slot.a)

    def replay_late(self, entries: bytes | bytearray) -> int:
        """Do what may be done behind a gap: acks of what is known to be pending; returns how many.

        Nothing behind the gap counts as delivered, so it is delivered again and none is skipped.
        """
        cdef bytes copy = bytes(entries)
        cdef const unsigned char* at = <const unsigned char*> PyBytes_AS_STRING(copy)
        cdef Py_ssize_t index, taken = 0
        cdef Slot slot
        assert not self.logging
        for index in range(len(copy) // SLOT_BYTES):
            read_slot(at + index * SLOT_BYTES, &slot)
            if slot.kind == ACKED and self.find(slot.b) >= 0:
                taken += self.acknowledge(slot.a, slot.b) == ACK_TAKEN
        return taken

    # The checkpoint:  0 version u64 · 8 ack policy u64 · 16 delivered · 32 ack floor (consumer u64,
    # stream u64) · 48 pending u64 · 56 redelivered u64 · 64 pending (stream u64, consumer u64,
    # time_ns i64) …, by stream sequence · redelivered (stream u64, count u64) …
    # Version 2 adds: runs held u64 · terminated u64 · held (first u64, last u64) …, in order ·
    # terminated (stream u64) … A state without any of these is written as version 1.

    def encode(self) -> bytes:
        """The whole state, little-endian."""
        cdef Py_ssize_t size = ENCODED_HEADER_BYTES + self.pending_count * ENCODED_PENDING_BYTES
        cdef bytes encoded
        cdef unsigned char* to
        cdef Py_ssize_t at
        cdef bint is_in_order = self.held is None and not self.terminated
        self.settle_floor()
        size += len(self.redelivered) * ENCODED_REDELIVERED_BYTES
        encoded = PyBytes_FromStringAndSize(NULL, size)
        to = <unsigned char*> PyBytes_AS_STRING(encoded)
        for value in (
            ENCODING_IN_ORDER if is_in_order else ENCODING_VERSION, self.ack_policy,
            self.delivered_consumer, self.delivered_stream, self.floor_consumer, self.floor_stream,
            self.pending_count, len(self.redelivered),
        ):
            write_u64(to, value)
            to += 8
        for at in range(self.head, self.tail):
            if self.items[at].consumer:
                write_u64(to, self.items[at].stream)
                write_u64(to + 8, self.items[at].consumer)
                write_u64(to + 16, <uint64_t> self.items[at].time_ns)
                to += ENCODED_PENDING_BYTES
        for stream, count in self.redelivered.items():
            write_u64(to, stream)
            write_u64(to + 8, count)
            to += ENCODED_REDELIVERED_BYTES
        return encoded if is_in_order else encoded + self.encode_rest()

    cdef bytes encode_rest(self):
        cdef list runs = [] if self.held is None else list(self.held.runs())
        cdef list terminated = sorted(self.terminated or ())
        numbers = [len(runs), len(terminated), *chain.from_iterable(runs), *terminated]
        return struct.pack(f"<{len(numbers)}Q", *numbers)

    def decode(self, data: bytes) -> None:
        """Become what `encode` wrote, its ack policy included, which no consumer ever changes.

        Raises DamagedEncoding, and the state is undefined then.
        """
        cdef const unsigned char* at = <const unsigned char*> PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = len(data), rest
        cdef uint64_t version, pending, redelivered, stream, last
        assert not self.logging
        version = read_u64(at) if size >= ENCODED_HEADER_BYTES else 0
        if not ENCODING_IN_ORDER <= version <= ENCODING_VERSION:
            raise DamagedEncoding("consumer state of an unknown version")
        if read_u64(at + 8) > POLICY_MAX:
            raise DamagedEncoding("consumer state with an unknown ack policy")
        self.ack_policy = <int> read_u64(at + 8)
        self.delivered_consumer, self.delivered_stream = read_u64(at + 16), read_u64(at + 24)
        self.floor_consumer, self.floor_stream = read_u64(at + 32), read_u64(at + 40)
        pending, redelivered = read_u64(at + 48), read_u64(at + 56)
        rest = size - ENCODED_HEADER_BYTES
        if (
            pending > <uint64_t> rest // ENCODED_PENDING_BYTES
            or redelivered > <uint64_t> rest // ENCODED_REDELIVERED_BYTES
        ):
            raise DamagedEncoding("consumer state of a wrong length")
        rest -= pending * ENCODED_PENDING_BYTES + redelivered * ENCODED_REDELIVERED_BYTES
        if rest < 0 or version == ENCODING_IN_ORDER and rest:
            raise DamagedEncoding("consumer state of a wrong length")
        at += ENCODED_HEADER_BYTES
        self.head = self.tail = self.pending_count = 0
        self.reserve(pending)
        last = self.floor_stream
        for _ in range(pending):
            stream = read_u64(at)
            if not last < stream <= self.delivered_stream or read_u64(at + 8) == 0:
                raise DamagedEncoding("consumer state contradicts itself")
            last = stream
            self.append(stream, read_u64(at + 8), <int64_t> read_u64(at + 16))
            at += ENCODED_PENDING_BYTES
        self.redelivered = {}
        for _ in range(redelivered):
            self.redelivered[read_u64(at)] = read_u64(at + 8)
            at += ENCODED_REDELIVERED_BYTES
        self.held = self.terminated = None
        if version == ENCODING_VERSION:
            self.decode_rest(data[size - rest:])

    cdef int decode_rest(self, bytes data) except -1:
        """What version 2 adds."""
        cdef uint64_t count = len(data) // sizeof(uint64_t), last = self.floor_stream, runs
        cdef tuple numbers = struct.unpack_from(f"<{count}Q", data)
        if count < 2 or len(data) % sizeof(uint64_t) or count - 2 < max(numbers[:2]):
            raise DamagedEncoding("consumer state of a wrong length")
        runs = numbers[0]
        if count - 2 != 2 * runs + numbers[1]:
            raise DamagedEncoding("consumer state of a wrong length")
        self.held = SequenceSet()
        for at in range(2, 2 + 2 * runs, 2):
            if not last < numbers[at] <= numbers[at + 1] <= self.delivered_stream:
                raise DamagedEncoding("consumer state contradicts itself")
            last = numbers[at + 1]
            self.held.add_run(numbers[at], last)
        self.terminated = set(numbers[2 + 2 * runs:]) or None
        if not all(self.find(sequence) >= 0 for sequence in self.terminated or ()):
            raise DamagedEncoding("consumer state contradicts itself")
        return 0

    # Pending messages

    cdef Py_ssize_t find(self, uint64_t stream) noexcept nogil:
        """The index of what is pending under that stream sequence, or -1."""
        cdef Py_ssize_t low = self.head, high = self.tail - 1, middle
        if low > high or stream < self.items[low].stream or stream > self.items[high].stream:
            return -1
        # Stream sequences differ by 1 at least: it cannot stand further back than without gaps.
        if stream - self.items[low].stream < <uint64_t> (high - low):
            high = low + <Py_ssize_t> (stream - self.items[low].stream)
        middle = high
        while low <= high:
            if self.items[middle].stream == stream:
                return middle if self.items[middle].consumer else -1
            if self.items[middle].stream < stream:
                low = middle + 1
            else:
                high = middle - 1
            middle = (low + high) // 2
        return -1

    cdef Py_ssize_t lower_bound(self, uint64_t stream) noexcept nogil:
        cdef Py_ssize_t low = self.head, high = self.tail, middle
        if low == high or self.items[low].stream >= stream:
            return low
        while low < high:
            middle = (low + high) // 2
            if self.items[middle].stream < stream:
                low = middle + 1
            else:
                high = middle
        return low

    cdef int append(self, uint64_t stream, uint64_t consumer, int64_t time_ns) except -1:
        assert self.head == self.tail or self.items[self.tail - 1].stream < stream
        if self.tail == self.capacity:
            self.reserve(1)
        self.items[self.tail].stream = stream
        self.items[self.tail].consumer = consumer
        self.items[self.tail].time_ns = time_ns
        self.tail += 1
        self.pending_count += 1
        return 0

    cdef int insert(self, uint64_t stream, uint64_t consumer, int64_t time_ns) except -1:
        """Where it belongs: what stands behind it moves up to the next that is acknowledged."""
        cdef Py_ssize_t low, high
        self.reserve(1)
        low = high = self.lower_bound(stream)
        if low > self.head and self.items[low - 1].consumer == 0:
            low -= 1
        elif low == self.head > 0:
            low = self.head = self.head - 1
        else:
            while high < self.tail and self.items[high].consumer:
                high += 1
            memmove(
                &self.items[low + 1], &self.items[low], (high - low) * sizeof(PendingMessage)
            )
            self.tail = max(self.tail, high + 1)
        self.items[low].stream = stream
        self.items[low].consumer = consumer
        self.items[low].time_ns = time_ns
        self.pending_count += 1
        return 0

    cdef int reserve(self, Py_ssize_t count) except -1:
        """Make room for `count` more behind the tail: by moving to the front, else by growing."""
        cdef Py_ssize_t used = self.tail - self.head, capacity = max(self.capacity, CAPACITY_MIN)
        cdef PendingMessage* grown
        if self.head and used * 2 <= self.capacity and used + count <= self.capacity:
            memmove(self.items, self.items + self.head, used * sizeof(PendingMessage))
            self.head, self.tail = 0, used
            return 0
        while capacity < self.tail + count:
            capacity *= 2
        if capacity > self.capacity:
            grown = <PendingMessage*> realloc(self.items, capacity * sizeof(PendingMessage))
            if grown == NULL:
                raise MemoryError
            self.items = grown
            self.capacity = capacity
        return 0

    cdef void remove(self, Py_ssize_t index) noexcept nogil:
        self.items[index].consumer = 0
        self.pending_count = self.pending_count - 1
        if self.pending_count == 0:
            self.head = self.tail = 0
            return
        while self.items[self.head].consumer == 0:
            self.head = self.head + 1
        while self.items[self.tail - 1].consumer == 0:
            self.tail = self.tail - 1
        if self.tail - self.head > COMPACT_MIN + 2 * self.pending_count:
            self.compact()

    cdef void compact(self) noexcept nogil:
        cdef Py_ssize_t at, to = self.head
        for at in range(self.head, self.tail):
            if self.items[at].consumer:
                self.items[to] = self.items[at]
                to += 1
        self.tail = to
