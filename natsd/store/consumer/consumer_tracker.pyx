"""The state of one consumer: delivered messages, pending acks. It has no files and no clock.

    floor                                                     delivered
      │   items (by stream sequence; `consumer` 0: acked)          │
      ▼   ┌────────┬────────┬────────┬────────┬────────┬────────┐  ▼
          │ 7 ▸ 3  │  acked │ 9 ▸ 5  │ 12 ▸ 6 │  acked │ 15 ▸ 8 │
          └────────┴────────┴────────┴────────┴────────┴────────┘
           head: always pending                tail - 1: always pending

Invariants
- First deliveries come in stream order, so `items` is sorted: an item is found by its place where
  there are no gaps, else by bisection. Acknowledged items are dropped at once at either end, and in
  between when they are more than half. A pending message takes 24 bytes, and no Python object.
- floor <= every pending message <= delivered, in stream sequences; `head` is the lowest.
- A `held` message was read, but is delivered later than messages behind it. It too lies between
  floor and delivered, and is inserted in `items` when it is delivered. Once there was such a
  message, the floor's consumer sequence is computed only on request, because the lowest pending
  consumer sequence need not be `head`'s any more.
- While `logging`, every change that takes effect is one entry of `changes`; replaying the entries
  on the earlier state yields the later state. `on_change` is called at the first entry, and at
  every change while nothing is logged.

The rules are those of nats-server's consumer file store (`UpdateDelivered`, `UpdateAcks`): with
explicit acks, when the message right above the floor is acked, the floor rises to just below the
next pending message, or to the last delivered one if nothing is pending.
"""

import struct
from itertools import chain

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from natsd.store.codec.records cimport read_u64, write_u64
from natsd.store.sequence_set cimport SequenceSet

from natsd.store.consumer.consumer_state import AckPolicyCode, ConsumerState, Pending, SequencePair
from natsd.store.errors import DamagedEncoding, MessageNotFound, NoAckPolicy, OldUpdate

cdef enum:
    POLICY_NONE = 0
    POLICY_EXPLICIT = 2
    POLICY_MAX = 3
    PENDING_CAPACITY_MIN = 16
    COMPACT_MIN = 64            # items; with fewer unused ones nothing is moved
    ENCODED_HEADER_BYTES = 64
    ENCODED_PENDING_BYTES = 24
    ENCODED_REDELIVERED_BYTES = 16
    ENCODED_RUN_BYTES = 16
    ENCODED_TERMINATED_BYTES = 8
    ENCODING_IN_ORDER = 1       # of a state without messages ever held or terminated
    ENCODING_VERSION = 2
    ENCODED_COUNTS_BYTES = 16   # counts of held runs and terminated messages in version 2

ENTRY_KINDS = {
    "DELIVERED": DELIVERED, "ACKED": ACKED, "SKIPPED": SKIPPED, "FORGOTTEN": FORGOTTEN,
    "HELD": HELD, "LET_GO": LET_GO, "TERMINATED": TERMINATED,
}

assert POLICY_NONE == AckPolicyCode.NONE and POLICY_EXPLICIT == AckPolicyCode.EXPLICIT
assert POLICY_MAX == max(AckPolicyCode)


cdef class ConsumerTracker:
    """The state of one consumer. Sequences start at 1; 0 means none."""

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
        """Note that a message was sent for the `count`-th time.

        `consumer` counts all deliveries, `stream` is the message's sequence. At or below the floor
        the call is ignored, as happens when a replicated log is replayed. Raises `NoAckPolicy` for
        a second delivery under `AckPolicyCode.NONE`.
        """
        if count != 1 and self.ack_policy == POLICY_NONE:
            raise NoAckPolicy
        if consumer <= self.floor_consumer:
            return
        cdef bint drop = self.max_deliver > 0 and count > self.max_deliver
        self.log(DELIVERED, DROPPED if drop else 0, count, consumer, stream, time_ns)
        self.deliver(consumer, stream, count, time_ns, drop)

    cpdef update_acks(self, uint64_t consumer, uint64_t stream):
        """Note that a message was acknowledged or terminated.

        With `AckPolicyCode.ALL`, all messages before it are too. At or below the floor the call is
        ignored. Raises `NoAckPolicy`, or `MessageNotFound` if the message is not pending.
        """
        if self.ack_policy == POLICY_NONE:
            raise NoAckPolicy
        if self.acknowledge(consumer, stream) == ACK_UNKNOWN:
            raise MessageNotFound

    cdef AckResult acknowledge(self, uint64_t consumer, uint64_t stream) except *:
        """Do `update_acks` for compiled callers; return a result instead of raising.

        Raises MemoryError only.
        """
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
        # Compare the first delivery's sequence: an ack may name a later delivery.
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
        """Raise the floor to below the lowest pending or held message."""
        cdef uint64_t lowest = 0, held = 0
        if self.pending_count:
            lowest = self.items[self.head].stream
        else:
            self.floor_consumer = self.delivered_consumer
        if self.held.find_present(1, &held) and (lowest == 0 or held < lowest):
            lowest = held
        self.floor_stream = max(self.floor_stream, lowest - 1 if lowest else self.delivered_stream)

    def settle_floor(self) -> None:
        """Bring `floor_consumer` up to date, which looks at all pending messages."""
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
                if index >= 0:      # the floor must not wait for this message
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
        """Skip a gap: no message up to that stream sequence is to be delivered."""
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
        """Note that a run was read, but is delivered after later messages. Explicit acks only."""
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
        """Drop the held messages of a run: they are removed, or not wanted any more."""
        if self.held is not None and self.held.discard_run(first, last):
            self.log(LET_GO, 0, 0, first, last, 0)
            self.raise_floor()

    cpdef terminate(self, uint64_t stream):
        """Note that a pending message is never to be delivered again, though it is not acked."""
        if self.find(stream) < 0 or self.terminated is not None and stream in self.terminated:
            return
        self.log(TERMINATED, 0, 0, stream, 0, 0)
        if self.terminated is None:
            self.terminated = set()
        self.terminated.add(stream)

    def remove_redelivered_below(self, uint64_t stream) -> None:
        """Forget the delivery counts of messages below that stream sequence, which are removed."""
        gone = [sequence for sequence in self.redelivered if sequence < stream]
        if gone:
            self.log(FORGOTTEN, 0, 0, stream, 0, 0)
            for sequence in gone:
                del self.redelivered[sequence]

    # Whole states. No entry describes such a change, so the log must begin again

    def set_starting(self, uint64_t stream) -> None:
        """Start behind that stream sequence, with no pending message."""
        assert not self.logging
        self.change_count += 1
        self.head = self.tail = self.pending_count = 0
        self.redelivered = {}
        self.held = None
        self.terminated = None
        self.floor_consumer = self.delivered_consumer
        self.delivered_stream = self.floor_stream = stream

    def replace(self, state: ConsumerState) -> None:
        """Replace the whole state by `state`, which must be valid."""
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

    # Queries

    def state(self) -> ConsumerState:
        """Return a copy of the whole state.

        This takes time in proportion to the number of pending messages.
        """
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
        """Return the pending delivery of that stream sequence; None: not pending."""
        cdef Py_ssize_t index = self.find(stream)
        if index < 0:
            return None
        return Pending(self.items[index].consumer, self.items[index].time_ns)

    # The log

    def listen(self, on_change) -> None:
        """Set the function to call at the first change after `changes` was emptied; None: none."""
        self.on_change = on_change

    def start_logging(self, uint64_t change_count) -> None:
        """Log every change from now on; `change_count` changes came before."""
        self.changes.clear()
        self.change_count = change_count
        self.logging = True

    def stop_logging(self) -> None:
        """Stop logging and drop the entries: a checkpoint will contain their changes."""
        self.changes.clear()
        self.logging = False

    cdef int log(
        self, int kind, int flags, uint64_t count, uint64_t a, uint64_t b, int64_t c
    ) except -1:
        self.change_count += 1
        if self.listener is not None:
            self.listener.note(kind, flags, count, a, b, <uint64_t> c)
        if self.logging:
            self.changes.add(kind, flags, count, a, b, <uint64_t> c)
        if self.on_change is not None and self.changes.count <= 1:
            self.on_change()
        return 0

    def replay(self, entries: bytes | bytearray) -> None:
        """Apply entries, in order, without logging. All must be valid."""
        cdef bytes copy = bytes(entries)
        cdef const unsigned char* at = <const unsigned char*> PyBytes_AS_STRING(copy)
        cdef Py_ssize_t index
        cdef Entry entry
        assert not self.logging
        for index in range(len(copy) // ENTRY_BYTES):
            read_entry(at + index * ENTRY_BYTES, &entry)
            self.redo(&entry)

    cdef int redo(self, Entry* entry) except -1:
        """Make the change of an entry."""
        if entry.kind == DELIVERED:
            self.deliver(
                entry.a, entry.b, entry.count, <int64_t> entry.c, entry.flags & DROPPED != 0
            )
        elif entry.kind == ACKED:
            self.acknowledge(entry.a, entry.b)
        elif entry.kind == SKIPPED:
            self.update_starting(entry.a)
        elif entry.kind == FORGOTTEN:
            self.remove_redelivered_below(entry.a)
        elif entry.kind == HELD:
            self.take_held(entry.a, entry.b)
        elif entry.kind == LET_GO:
            self.let_go(entry.a, entry.b)
        elif entry.kind == TERMINATED:
            self.terminate(entry.a)
        return 0

    def apply(self, bytes entries not None) -> None:
        """Make the changes that another replica's tracker has logged, and log them.

        Entries may come again, some or all of those since an earlier state: then they are applied
        in their order up to the last one that was applied before, at least.
        """
        cdef const unsigned char* at = <const unsigned char*> PyBytes_AS_STRING(entries)
        cdef Py_ssize_t index
        cdef Entry entry
        for index in range(len(entries) // ENTRY_BYTES):
            read_entry(at + index * ENTRY_BYTES, &entry)
            if entry.kind == DELIVERED:
                if entry.a <= self.floor_consumer or (
                    entry.a <= self.delivered_consumer and self.find(entry.b) < 0
                ):
                    continue    # it comes again, and was acknowledged since
            elif entry.kind == HELD and entry.b <= self.delivered_stream:
                continue        # it comes again
            if entry.kind == DELIVERED or entry.kind == HELD:   # `redo` logs the others itself
                self.log(
                    entry.kind, entry.flags, entry.count, entry.a, entry.b, <int64_t> entry.c
                )
            self.redo(&entry)

    def replay_late(self, entries: bytes | bytearray) -> int:
        """Apply the entries behind a gap that are safe: acks of messages known to be pending.

        Returns how many were applied. No message behind the gap counts as delivered, so all of them
        are delivered again and none is skipped.
        """
        cdef bytes copy = bytes(entries)
        cdef const unsigned char* at = <const unsigned char*> PyBytes_AS_STRING(copy)
        cdef Py_ssize_t index, taken = 0
        cdef Entry entry
        assert not self.logging
        for index in range(len(copy) // ENTRY_BYTES):
            read_entry(at + index * ENTRY_BYTES, &entry)
            if entry.kind == ACKED and self.find(entry.b) >= 0:
                taken += self.acknowledge(entry.a, entry.b) == ACK_TAKEN
        return taken

    # The checkpoint:  0 version u64 · 8 ack policy u64 · 16 delivered · 32 ack floor (consumer u64,
    # stream u64) · 48 pending u64 · 56 redelivered u64 · 64 pending (stream u64, consumer u64,
    # time_ns i64) …, by stream sequence · redelivered (stream u64, count u64) …
    # Version 2 adds: runs held u64 · terminated u64 · held (first u64, last u64) …, in order ·
    # terminated (stream u64) … A state without any of these is written as version 1.

    def encode(self) -> bytes:
        """Return the whole state, little-endian, as drawn above."""
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
        """Replace the state by an encoded one, ack policy included, which no consumer ever changes.

        Raises DamagedEncoding; the state is undefined then.
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
        """Read the part that version 2 adds."""
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
        """Return the index of the pending item with that stream sequence; -1: none."""
        cdef Py_ssize_t low = self.head, high = self.tail - 1, middle
        if low > high or stream < self.items[low].stream or stream > self.items[high].stream:
            return -1
        # Stream sequences differ by at least 1: the item stands at the latest where it would
        # without gaps.
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
        """Insert an item at its place; the items behind it move up to the next acknowledged one."""
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
        """Make room for `count` more items behind the tail, by moving the items or by growing."""
        cdef Py_ssize_t used = self.tail - self.head
        cdef Py_ssize_t capacity = max(self.capacity, PENDING_CAPACITY_MIN)
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
        """Mark an item as acknowledged, and drop such items at both ends."""
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
