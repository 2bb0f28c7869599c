"""The messages that a consumer has still to read, one of each key at a time, in order.

    key        a token of the subject as it is stored; a subject that has fewer is its own key
    messages   A1 B1 A2 A3 C1 B2 · · ·
    pending    ▪  ▪        ▪                A, B, C are busy
    waiting          ▪  ▪     ▪             read, each behind its key: A2 ▸ A3, B2
                                 ▲ next     not read yet

    A1 is acknowledged ─▶ that is durable ─▶ A is ready ─▶ A2 goes out, before anything not read yet

Promise
- No message is delivered while another of its key is pending, nor while the acknowledgement of that
  one could still be lost: after a crash, a message that is delivered again is the last of its key.
- Messages of a key are delivered in stream order. Keys are compared as texts: no two keys are
  confused.
- At most `look_ahead_max` messages wait, 16 bytes each: then nothing more is read until a key is
  free. A delivery and an acknowledgement cost a few look-ups in dicts.
- Overtaken messages are `held` in the tracker, as runs, before the overtaking message counts as
  delivered: so a restart knows which messages are still to come. Then their keys are read again
  from the messages, in slices, before anything is delivered (`must_restore`).
- A consumer without a key has a plain PendingCursor.
"""

from collections import deque

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr

from natsd.store.codec.records cimport RecordView
from natsd.store.consumer.tracking cimport ConsumerTracker
from natsd.store.log.message_log cimport DONE, GONE, NEEDS_BLOCK, Outcome, PENDING
from natsd.store.log.subjects cimport Filter
from natsd.store.sequence_set cimport SequenceSet

from natsd.store.block.cold_block import ColdBlock

cdef enum:
    NODES_MIN = 64
    READ_AT_ONCE = 64           # most messages that one `find` reads
    RESTORE_COST = 100          # of a message, in units of counting: about 2 ns each
    NO_NODE = -1


cdef bytes name_of(const char* subject, Py_ssize_t length, int token):
    """Return the key of a subject.

    A dot in front marks a key that is the whole subject: no token has a dot.
    """
    cdef const char* end = subject + length
    cdef const char* at = subject
    cdef const char* dot
    for _ in range(token - 1):
        dot = <const char*> memchr(at, c".", end - at)
        if dot == NULL:
            return b"." + subject[:length]
        at = dot + 1
    dot = <const char*> memchr(at, c".", end - at)
    return at[:(end if dot == NULL else dot) - at]


cdef class Key:
    def __cinit__(self, bytes name):
        self.name = name
        self.head = self.tail = NO_NODE

    cdef bint is_free(self) noexcept:
        return self.holder == 0 and not self.is_settling and self.head == NO_NODE


cdef class KeyedPendingCursor(PendingCursor):
    def __cinit__(self, *_args):
        self.waiting = SequenceSet()
        self.keys = {}
        self.holders = {}
        self.ready = deque()
        self.settling = deque()
        self.free_node = NO_NODE

    def __dealloc__(self):
        free(self.nodes)

    cdef int set_key(
        self, ConsumerTracker tracker, int token, Py_ssize_t look_ahead_max
    ) except -1:
        assert token > 0 and look_ahead_max > 0
        self.tracker = tracker
        self.token = token
        self.look_ahead_max = look_ahead_max
        return 0

    @property
    def is_counting(self):
        """Whether `size` is not exact yet."""
        return self.must_restore or self.must_count or self.counting is not None

    cdef int set_filter(self, Filter wanted) except -1:
        self.hold_all()
        return PendingCursor.set_filter(self, wanted)

    cdef int begin(self, uint64_t next_sequence, uint64_t resume, starts) except -1:
        """Begin; the tracker says which messages are held."""
        self.waiting.empty()
        return PendingCursor.begin(self, next_sequence, resume, starts)

    cdef int look_again(self, uint64_t from_sequence) except -1:
        """Begin with the tracker's state.

        Messages that were read, but neither delivered nor held, are read again; a start list is
        not.
        """
        if self.start_at < self.start_count:
            self.hold_all()
        if self.settling:
            self.barrier = self.tracker.change_count
        self.waiting.empty()
        self.keys.clear()
        self.holders.clear()
        self.ready.clear()
        self.settling.clear()
        self.chosen = None
        free(self.nodes)
        self.nodes = NULL
        self.node_capacity = self.node_count = 0
        self.free_node = NO_NODE
        self.must_restore = True
        self.has_holders = False
        self.restore_at = 0
        return PendingCursor.look_again(self, from_sequence)

    # Changes of messages

    cdef int vanished(self, uint64_t sequence) except -1:
        if self.waiting.discard_run(sequence, sequence):
            self.tracker.let_go(sequence, sequence)
            return 0
        return PendingCursor.vanished(self, sequence)

    cdef int hold_below(self, uint64_t sequence) except -1:
        cdef uint64_t first = self.tracker.delivered_stream + 1, last = 0
        while self.waiting.find_run(first, &first, &last) and first < sequence:
            self.tracker.hold(first, min(last, sequence - 1))
            first = last + 1
        return 0

    cdef int hold_all(self) except -1:
        return self.hold_below(<uint64_t> 1 << 63)

    cdef int passed(self, uint64_t sequence) except -1:
        """Note that the chosen message was delivered, or is gone."""
        cdef Key key = self.chosen
        cdef bint has_waited = key.is_ready
        self.chosen = None
        if has_waited:
            assert self.nodes[key.head].sequence == sequence
            self.ready.popleft()
            key.is_ready = False
            self.drop_first(key)
            self.waiting.discard_run(sequence, sequence)
        else:
            PendingCursor.passed(self, sequence)
        if self.tracker.find(sequence) >= 0:
            key.holder = sequence
            self.holders[sequence] = key
            self.keys[key.name] = key
        elif has_waited:
            self.tracker.let_go(sequence, sequence)
            self.forget_if_free(key)
        return 0

    cdef int settled(self, uint64_t sequence) except -1:
        cdef Key key = self.holders.pop(sequence, None)
        if key is None:
            if self.must_restore:
                self.barrier = self.tracker.change_count
            return 0
        key.holder = 0
        key.is_settling = True
        self.settling.append((self.tracker.change_count, key))
        if key.head != NO_NODE:
            self.awaited = self.tracker.change_count
        return 0

    cdef int free_keys(self, uint64_t durable) except -1:
        cdef Key key
        self.durable = durable
        if self.awaited <= durable:
            self.awaited = 0
        if self.barrier <= durable:
            self.barrier = 0
        while self.settling and self.settling[0][0] <= durable:
            key = self.settling.popleft()[1]
            key.is_settling = False
            self.forget_if_free(key)
        return 0

    cdef int forget_if_free(self, Key key) except -1:
        """Make a key without a holder ready, or forget it if nothing waits."""
        if key.holder or key.is_settling:
            return 0
        if key.head == NO_NODE:
            self.keys.pop(key.name, None)
        elif not key.is_ready:
            key.is_ready = True
            self.ready.append(key)
        return 0

    # The number of messages to read

    cdef bint count_some(self, uint64_t visible, uint64_t budget) except? -1:
        if self.must_restore and not self.restore_some(budget):
            return False
        return PendingCursor.count_some(self, visible, budget)

    cdef int64_t size(self, uint64_t visible) noexcept:
        return PendingCursor.size(self, visible) + <int64_t> self.waiting.count

    cdef bint is_unread(self, uint64_t sequence) noexcept:
        return (
            self.waiting.has(sequence)
            or self.tracker.held is not None and self.tracker.held.has(sequence)
            or PendingCursor.is_unread(self, sequence)
        )

    # The next message

    cdef Outcome find(self, uint64_t visible, uint64_t* found) except? NEEDS_BLOCK:
        cdef Key key
        if self.barrier > self.durable:
            self.awaited = self.barrier
            return GONE
        key = self.first_ready()
        if key is None:
            return self.read_on(visible, found)
        self.chosen = key
        found[0] = self.nodes[key.head].sequence
        return DONE

    cdef Outcome read_on(self, uint64_t visible, uint64_t* found) except? NEEDS_BLOCK:
        """Read on to the next message whose key is free; other messages wait."""
        cdef RecordView view
        cdef Outcome outcome
        cdef Key key
        for _ in range(READ_AT_ONCE):
            if self.is_full():
                return GONE
            outcome = PendingCursor.find(self, visible, found)
            if outcome != DONE:
                return outcome
            outcome = self.look(found[0], &view)
            if outcome == NEEDS_BLOCK:
                return outcome
            if outcome == DONE:
                key = self.key_of(&view)
                if key.is_free():
                    self.chosen = key
                    return DONE
                self.wait(key, found[0])
                if key.is_settling:
                    self.awaited = self.tracker.change_count
            PendingCursor.passed(self, found[0])
        return PENDING

    cdef Key key_of(self, RecordView* view):
        """Return the key of a message; a new key is remembered only once it is busy."""
        cdef bytes name = name_of(view.subject, view.subject_len, self.token)
        cdef Key key = self.keys.get(name)
        return Key(name) if key is None else key

    cdef Key first_ready(self):
        """Return the key whose first message is to be delivered next; None: there is none."""
        cdef Key key
        while self.ready:
            key = self.ready[0]
            self.drop_gone(key)
            if key.head != NO_NODE:
                return key
            self.ready.popleft()
            key.is_ready = False
            self.forget_if_free(key)
        return None

    # Waiting messages

    cdef int wait(self, Key key, uint64_t sequence) except -1:
        cdef int32_t node
        if self.free_node == NO_NODE:
            self.grow_nodes()
        node = self.free_node
        self.free_node = self.nodes[node].next
        self.nodes[node] = Waiting(sequence, NO_NODE)
        if key.head == NO_NODE:
            key.head = node
        else:
            self.nodes[key.tail].next = node
        key.tail = node
        self.node_count += 1
        self.waiting.add_run(sequence, sequence)
        self.keys[key.name] = key
        return self.forget_if_free(key)

    cdef int grow_nodes(self) except -1:
        cdef Py_ssize_t capacity = max(<Py_ssize_t> NODES_MIN, 2 * self.node_capacity), at
        cdef Waiting* grown = <Waiting*> realloc(self.nodes, capacity * sizeof(Waiting))
        if grown == NULL:
            raise MemoryError
        self.nodes = grown
        for at in range(self.node_capacity, capacity):
            self.nodes[at].next = <int32_t> at + 1 if at + 1 < capacity else NO_NODE
        self.free_node = <int32_t> self.node_capacity
        self.node_capacity = capacity
        return 0

    cdef int drop_first(self, Key key) except -1:
        cdef int32_t node = key.head
        key.head = self.nodes[node].next
        self.nodes[node].next = self.free_node
        self.free_node = node
        self.node_count -= 1
        return 0

    cdef int drop_gone(self, Key key) except -1:
        """Drop the first messages of a key that are removed."""
        while key.head != NO_NODE and not self.waiting.has(self.nodes[key.head].sequence):
            self.drop_first(key)
        return 0

    cdef bint is_full(self) except -1:
        """Tell whether nothing more may be read; free many nodes of removed messages."""
        cdef Key key
        cdef int32_t before, node
        if self.node_count < self.look_ahead_max:
            return False
        if <Py_ssize_t> self.waiting.count > self.look_ahead_max // 2:
            return True
        for key in list(self.keys.values()):
            self.drop_gone(key)
            before = key.head
            while before != NO_NODE:
                node = self.nodes[before].next
                if node == NO_NODE or self.waiting.has(self.nodes[node].sequence):
                    before = node
                    continue
                self.nodes[before].next = self.nodes[node].next
                if key.tail == node:
                    key.tail = before
                self.nodes[node].next = self.free_node
                self.free_node = node
                self.node_count -= 1
        return False

    # After a restart

    cdef bint restore_some(self, uint64_t budget) except -1:
        """Read the keys of pending, then of held messages. True: all are read. Raises ColdBlock."""
        cdef int64_t left = budget
        cdef Py_ssize_t at
        cdef uint64_t sequence = 0
        while not self.has_holders and left > 0:
            at = self.tracker.lower_bound(self.restore_at)
            if at == self.tracker.tail:
                self.has_holders = True
                self.restore_at = 0
                break
            sequence = self.tracker.items[at].stream
            if self.tracker.items[at].consumer:
                self.restore_holder(sequence)
            self.restore_at = sequence + 1
            left -= RESTORE_COST
        while left > 0:
            if self.tracker.held is None or not self.tracker.held.find_present(
                self.restore_at, &sequence
            ):
                self.must_restore = False
                return True
            self.restore_waiting(sequence)
            self.restore_at = sequence + 1
            left -= RESTORE_COST
        return False

    cdef int restore_holder(self, uint64_t sequence) except -1:
        cdef RecordView view
        cdef Key key
        cdef Outcome outcome = self.look(sequence, &view)
        if outcome == NEEDS_BLOCK:
            raise ColdBlock(self.log.wanted)
        if outcome == DONE:
            key = self.key_of(&view)
            if key.holder == 0:
                key.holder = sequence
                self.holders[sequence] = self.keys[key.name] = key
        return 0

    cdef int restore_waiting(self, uint64_t sequence) except -1:
        cdef RecordView view
        cdef Outcome outcome = self.look(sequence, &view)
        if outcome == NEEDS_BLOCK:
            raise ColdBlock(self.log.wanted)
        if outcome == DONE and (
            self.filter is None or self.filter.matches(view.subject, view.subject_len)
        ):
            return self.wait(self.key_of(&view), sequence)
        self.tracker.let_go(sequence, sequence)
        return 0

    @property
    def memory_bytes(self):
        """Bytes of the start list and the waiting messages."""
        return self.start_count * sizeof(uint64_t) + self.node_capacity * sizeof(Waiting)


# For tests

def key_name(bytes subject, int token):
    """Return the key of a subject."""
    return name_of(subject, len(subject), token)
