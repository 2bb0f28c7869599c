"""MessageLog: the state machine of one stream's storage, the same for files and for memory.

It owns the list of blocks, the subject index, the set of removed sequences, and the limits. It has
no file, no clock and no event loop:

    append ─▶ refused by a limit, or ─▶ active block, index ─▶ removals that the limits ask for

lookup.pyx finds messages by subject and filter, limits.pyx refuses and removes messages for the
limits. Changes are durable at once. If the log has LogCommits (log_commits.pyx), they are durable
with the next commit, and noted in the undo log until then.

Promise
- Every decision takes all changes so far into account, durable or not.
- An operation that needs a block which is not in memory raises ColdBlock, or answers NEEDS_BLOCK
  with the block in `wanted`, and has changed nothing; its store loads the block and repeats the
  operation.
- A removal at the front needs no record: it moves `first`, which each mark contains. The others are
  in `tombstones` until the next commit.
- A batch stands in one block, which may exceed its size for it, and so in one extent of one commit:
  if the commit turns out not to be whole, neither is the batch.
- `live_bytes` counts the record bytes of live messages (natsd.store.codec.records).
- Sequences are below 2^63; times are nanoseconds since 1970, as the caller gave them.

Source: nats-server's memstore.go and filestore.go for the meaning of limits and discard policies.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_Check
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset

from natsd.core.routing cimport wire_bytes
from natsd.store.block.array cimport Array
from natsd.store.block.blocks cimport ABSENT, FOUND, MsgBlock, NO_SLOT
from natsd.store.codec.records cimport (
    RECORD_BYTES_MAX, RecordView, SUBJECT_BYTES_MAX, TOGETHER, message_of, record_size,
)
from natsd.store.log.subjects cimport SubjectIndex
from natsd.store.sequence_set cimport SequenceSet

from natsd.store.block.cold_block import ColdBlock
from natsd.store.errors import (
    InvalidLimits, MaximumMessageSizeExceeded, MessageDamaged, MessageNotFound, SequenceMismatch,
    StoreEOF,
)
from natsd.store.store import Discard, Limits, StoreState

cdef extern from "Python.h":
    const char* utf8_of "PyUnicode_AsUTF8AndSize"(object text, Py_ssize_t* size)

cdef enum:
    GAP_MAX = 65_536            # missing sequences that a block may span


cdef inline uint64_t limit_of(object given):
    return max(given, 0)


cdef class Replaced:
    """The state of a log before it was emptied at once."""


@cython.final
cdef class MessageLog:
    """The messages of one stream with their limits."""

    def __cinit__(self, limits=None, make_block=None):
        """`make_block(base_sequence)` must return a new MsgBlock, in which appending continues."""
        self.make_block = make_block
        self.subjects = SubjectIndex()
        self.dead = SequenceSet()
        self.blocks = BlockList()
        self.expiries = Expiries()
        self.tombstones = SequenceSet()
        self.erasures = SequenceSet()
        self.replaced = []
        self.over_limit = {}
        self.sparse = set()
        self.take_limits(limits if limits is not None else Limits())
        memset(&self.edges, 0, sizeof(Edges))
        self.edges.first = max(self.limits.first_sequence, 1)
        self.edges.last = self.edges.first - 1
        self.edges.first_time_is_exact = True
        self.committed_index = SEQUENCE_LAST

    def take_over(
        self, list blocks not None, SubjectIndex subjects not None, SequenceSet dead not None,
        Expiries expiries not None, *, uint64_t first_sequence, uint64_t last_sequence,
        int64_t first_time_ns, int64_t last_time_ns, uint64_t msgs, uint64_t live_bytes,
    ):
        """Continue from the state found on disk; only for a log without changes and LogCommits.

        `first_time_ns` is the time of the first message, or an earlier one. `dead` holds the
        sequences between first and last that have no message.
        """
        assert self.msgs == 0 and self.blocks.count == 0 and not self.is_undoable
        self.blocks.set(blocks)
        self.subjects = subjects
        self.dead = dead
        self.expiries = expiries
        self.msgs = msgs
        self.live_bytes = live_bytes
        self.edges.first = first_sequence
        self.edges.last = last_sequence
        self.edges.first_time_ns = first_time_ns
        self.edges.last_time_ns = last_time_ns
        self.edges.first_time_is_exact = msgs == 0
        self.is_behind = self.is_over()

    cdef int begin_undo_log(self) except -1:
        """Note from now on what a rollback must undo: the state of this moment is durable."""
        self.is_undoable = True
        self.undo_log = UndoLog()
        self.undo_log.durable = self.edges
        return 0

    cdef bint has_undo(self) noexcept:
        if not self.is_undoable:
            return False
        return (
            self.undo_log.durable.last != self.edges.last
            or self.undo_log.durable.first != self.edges.first
            or self.undo_log.removal_count > 0 or self.undo_log.expired.count > 0
            or len(self.replaced) > 0
        )

    cdef int take_limits(self, limits) except -1:
        if limits.first_sequence > SEQUENCE_LAST:
            raise InvalidLimits("first_sequence is too large")
        self.limits = limits
        self.limit.max_msgs = limit_of(limits.max_msgs)
        self.limit.max_bytes = limit_of(limits.max_bytes)
        self.limit.max_msgs_per_subject = limit_of(limits.max_msgs_per_subject)
        self.limit.max_msg_size = limit_of(limits.max_msg_size)
        self.limit.max_age_ns = limits.max_age_ns
        self.limit.uncounted_bytes = limits.uncounted_bytes
        self.limit.discard_new = limits.discard is Discard.NEW
        self.limit.discard_new_per_subject = limits.discard_new_per_subject
        return 0

    # By sequence

    cdef bint is_here(self, uint64_t sequence) noexcept nogil:
        return (
            self.edges.first <= sequence <= self.edges.last and not self.dead.has(sequence)
        )

    cdef bint next_live(self, uint64_t sequence, uint64_t* found) noexcept nogil:
        """Find the first live message at or after `sequence`."""
        sequence = max(sequence, self.edges.first)
        if not self.dead.find_absent(sequence, found):
            return False
        return found[0] <= self.edges.last

    cdef bint live_before(self, uint64_t sequence, uint64_t* found) noexcept nogil:
        """Find the last live message at or before `sequence`."""
        sequence = min(sequence, self.edges.last)
        if not self.dead.find_absent_back(sequence, found):
            return False
        return found[0] >= self.edges.first

    cdef uint64_t live_below(self, uint64_t sequence) noexcept nogil:
        """Return how many live messages lie before `sequence`."""
        if sequence <= self.edges.first:
            return 0
        if sequence > self.edges.last:
            return self.msgs
        return sequence - self.edges.first - self.dead.count_through(sequence - 1)

    cdef Outcome view(self, uint64_t sequence, RecordView* out) except? NEEDS_BLOCK:
        cdef MsgBlock block
        if not self.is_here(sequence):
            if sequence > self.edges.last:
                raise StoreEOF()
            raise MessageNotFound()
        block = self.blocks.holding(sequence)
        cdef int answer = block.view(sequence, out)
        if answer == FOUND:
            return DONE
        if answer < 0:
            self.wanted = block
            return NEEDS_BLOCK
        raise MessageDamaged(sequence, "")

    def load(self, uint64_t sequence):
        """Return the message; None: `wanted` must be loaded first.

        Raises as Store.load_cached does.
        """
        cdef RecordView view
        if self.view(sequence, &view) != DONE:
            return None
        return message_of(&view)

    def has(self, uint64_t sequence):
        """Return whether there is such a message, in memory or not."""
        return bool(self.is_here(sequence))

    # Blocks

    cdef MsgBlock begin_block(self, uint64_t sequence):
        cdef MsgBlock block = self.make_block(sequence)
        assert block.base_sequence == sequence
        self.blocks.add(block)
        if self.is_undoable:
            self.undo_log.begun.append(block)
        return block

    cdef MsgBlock writable_block(self, uint64_t sequence):
        """Return the block to append to; begins a new one if there is none.

        After a rollback the active block may not be in memory: then a new one begins too.
        """
        cdef MsgBlock block = self.blocks.active
        if block is None or not block.has_arrays:
            return self.begin_block(sequence)
        return block

    cdef MsgBlock block_for(self, uint64_t sequence, uint64_t size):
        """Return the block for a record of `size` bytes; begins a new one if necessary."""
        cdef MsgBlock block = self.writable_block(sequence)
        if sequence > block.last_sequence + GAP_MAX:
            return self.begin_block(sequence)
        if (
            block.room() < <int64_t> size and block.last_sequence >= block.base_sequence
            and not self.is_together
        ):
            block = self.begin_block(sequence)
            block.expect_full()     # allocates all its memory, as the block before it filled up
        return block

    # Appending

    def append(
        self, subject, bytes headers, bytes data not None, int64_t time_ns, *,
        uint64_t sequence=0, int64_t expires_ns=0, bint is_checked=True,
    ):
        """Append a message; see Store.append.

        With `is_checked` false, the caller has checked the "discard new" limits itself.
        """
        return self.append_object(
            subject, headers, data, time_ns, sequence, expires_ns, is_checked
        )

    def append_together(self, messages not None, int64_t time_ns):
        """Append the messages as one batch; see Store.append_together."""
        cdef uint64_t size, total = 0
        cdef list batch = [
            (wire_bytes(subject), headers or b"", data) for subject, headers, data in messages
        ]
        for subject, headers, data in batch:
            size = record_size(len(subject), len(headers), len(data), False)
            check_append(self, size, <uint64_t> (len(headers) + len(data)))
            total += size
        self.begin_together(len(batch), total)
        try:
            for subject, headers, data in batch:
                self.append_object(subject, headers, data, time_ns, 0, 0, False)
        finally:
            self.end_together()
        return <int64_t> self.edges.last

    def append_many(self, messages not None, int64_t time_ns):
        """Append (subject, headers, data) tuples in order; see Store.append_many."""
        cdef int64_t sequence = <int64_t> self.edges.last
        cdef tuple message
        for message in messages:
            sequence = self.append_object(
                message[0], message[1], message[2], time_ns, 0, 0, True
            )
        return sequence

    cdef int64_t append_object(
        self, subject, bytes headers, bytes data, int64_t time_ns, uint64_t sequence,
        int64_t expires_ns, bint is_checked,
    ) except -1:
        cdef const char* name = NULL
        cdef Py_ssize_t length = 0
        if data is None:
            raise TypeError("a message's data is bytes, not None")
        if PyUnicode_Check(subject):
            if subject.isascii():
                name = utf8_of(subject, &length)
            else:
                subject = wire_bytes(subject)
        if name == NULL:
            name = PyBytes_AS_STRING(<bytes?> subject)
            length = PyBytes_GET_SIZE(subject)
        if length > SUBJECT_BYTES_MAX or PyBytes_GET_SIZE(data) > RECORD_BYTES_MAX:
            raise MaximumMessageSizeExceeded()
        if headers is None:
            return self.append_raw(
                name, <uint32_t> length, NULL, 0, PyBytes_AS_STRING(data),
                <uint32_t> PyBytes_GET_SIZE(data), time_ns, sequence, expires_ns, is_checked,
            )
        if PyBytes_GET_SIZE(headers) > RECORD_BYTES_MAX:
            raise MaximumMessageSizeExceeded()
        return self.append_raw(
            name, <uint32_t> length, PyBytes_AS_STRING(headers),
            <uint32_t> PyBytes_GET_SIZE(headers), PyBytes_AS_STRING(data),
            <uint32_t> PyBytes_GET_SIZE(data), time_ns, sequence, expires_ns, is_checked,
        )

    cdef int64_t append_raw(
        self, const char* subject, uint32_t subject_len, const char* headers, uint32_t headers_len,
        const char* data, uint32_t data_len, int64_t time_ns, uint64_t sequence,
        int64_t expires_ns, bint is_checked,
    ) except -1:
        cdef uint64_t size = record_size(subject_len, headers_len, data_len, expires_ns != 0)
        cdef uint64_t payload = <uint64_t> headers_len + data_len
        cdef int64_t slot
        cdef MsgBlock block
        check_append(self, size, payload)
        if sequence == 0:
            sequence = self.edges.last + 1
        elif sequence <= self.edges.last or sequence > SEQUENCE_LAST:
            raise SequenceMismatch()
        if is_checked and self.limit.discard_new:
            refuse_over_limit(self, self.subjects.find(subject, subject_len), size)
        block = self.block_for(sequence, size)
        slot = self.subjects.place(subject, subject_len)
        block.append(
            sequence, time_ns, expires_ns, subject, subject_len, headers, headers_len, data,
            data_len, slot,
        )
        self.subjects.note(slot, sequence)
        self.end_at(sequence, time_ns)
        self.msgs += 1
        self.live_bytes += size
        if expires_ns > 0:
            self.note_expiry(expires_ns, sequence)
        if self.limit.max_msgs_per_subject:
            if self.subjects.record(slot).count > self.limit.max_msgs_per_subject:
                thin_subject(self, slot)
        if self.is_over():
            enforce_limits(self, REMOVALS_MAX)
        if self.needs_care or self.is_behind or not self.is_told:
            self.tell()
        return sequence

    cdef int begin_together(self, uint64_t count, uint64_t size) except -1:
        cdef MsgBlock block
        assert not self.is_together
        if count > SEQUENCE_LAST - self.edges.last:
            raise SequenceMismatch()
        block = self.block_for(self.edges.last + 1, size)
        block.reserve(self.edges.last + 1, size)
        block.message_flags = TOGETHER
        self.is_together = True
        return 0

    cdef int end_together(self) except -1:
        assert self.is_together
        self.is_together = False
        self.blocks.active.message_flags = 0
        if not self.is_told:
            self.tell()
        return 0

    def set_listener(self, listener):
        """Set a function to call when there is something to do; None: no function.

        It is called without arguments at the first change since a commit was taken, and when
        removals were deferred or memory can be freed (`is_behind`, `needs_care`).
        """
        self.listener = listener
        self.is_told = False

    def set_observer(self, LogObserver observer):
        """Set the observer of all removals from now on; None: no observer."""
        self.observer = observer

    cdef int tell(self) except -1:
        self.is_told = True
        if self.listener is not None and (
            self.is_undoable or self.needs_care or self.is_behind
        ):
            self.listener()
        return 0

    cdef int end_at(self, uint64_t sequence, int64_t time_ns) except -1:
        """Move the log's end to a new message, perhaps after a gap in the sequences."""
        if self.msgs == 0:
            self.edges.first = sequence
            self.edges.first_time_ns = time_ns
            self.edges.first_time_is_exact = True
        elif sequence > self.edges.last + 1:
            self.dead.add_run(self.edges.last + 1, sequence - 1)
        self.edges.last = sequence
        self.edges.last_time_ns = time_ns
        return 0

    def skip(self, uint64_t count=1):
        """Reserve `count` sequences without messages; see Store.skip."""
        if count == 0:
            return self.edges.last
        return self.skip_raw(count)

    cdef uint64_t skip_raw(self, uint64_t count) except 0:
        cdef uint64_t sequence = self.edges.last + 1
        if self.refusal is not None:
            raise self.refusal()
        if count > SEQUENCE_LAST - self.edges.last:
            raise SequenceMismatch()
        self.writable_block(sequence).append_skip(sequence, count, self.edges.last_time_ns)
        if self.msgs:
            self.dead.add_run(sequence, sequence + count - 1)
        self.edges.last = sequence + count - 1
        if self.msgs == 0:
            self.edges.first = self.edges.last + 1
            self.retire_blocks()
        if not self.is_told:
            self.tell()
        return self.edges.last

    # Removing

    cdef Outcome remove(self, uint64_t sequence, bint erase) except? NEEDS_BLOCK:
        cdef MsgBlock block
        cdef uint32_t slot, size
        if sequence < self.edges.first or sequence > self.edges.last or self.dead.has(sequence):
            return GONE
        block = self.blocks.holding(sequence)
        if not block.has_arrays:
            self.wanted = block
            return NEEDS_BLOCK
        if block.find(sequence) == ABSENT:
            return self.remove_lost(sequence, block)
        slot = block.slot_of(sequence)
        size = block.size_of(sequence)
        if self.observer is not None:
            self.observer.removed(sequence, slot, block)
        self.dead.add_run(sequence, sequence)
        if self.is_undoable:
            self.undo_log.add(sequence, slot, size)
        self.let_go(block, sequence, slot)
        self.msgs -= 1
        self.live_bytes -= size
        if erase:
            self.erasures.add_run(sequence, sequence)
            self.needs_care = not self.is_undoable
        elif sequence != self.edges.first and self.is_undoable:
            self.tombstones.add_run(sequence, sequence)
        if sequence == self.edges.first:
            self.move_first()
        return DONE

    cdef Outcome remove_lost(self, uint64_t sequence, MsgBlock block) except? NEEDS_BLOCK:
        """Remove a message that does not verify any more, but was there when the store was opened.

        Its subject is unknown; `thin_subject` finds out later that it has one message less.
        """
        if self.observer is not None:
            self.observer.removed(sequence, NO_SLOT, block)
        self.dead.add_run(sequence, sequence)
        self.msgs -= 1
        if sequence == self.edges.first:
            self.move_first()
        elif self.is_undoable:
            self.tombstones.add_run(sequence, sequence)
        return DONE

    cdef int let_go(self, MsgBlock block, uint64_t sequence, uint32_t slot) except -1:
        """Remove a message from the index and from its block."""
        cdef RecordView view
        cdef bint was_full = block.live_bytes * 2 >= block.size
        self.subjects.unnote(slot, sequence)
        if self.subjects.record(slot).count == 0 and block.view(sequence, &view) == FOUND:
            if self.is_undoable:
                self.subjects.remember_removed(view.subject, view.subject_len)
            else:
                self.subjects.forget(view.subject, view.subject_len, slot)
        block.mark_dead(sequence)
        if was_full and block.live_bytes * 2 < block.size and block is not self.blocks.active:
            self.sparse.add(block)
            self.needs_care = not self.is_undoable
        return 0

    cdef int move_first(self) except -1:
        """Move the log's start to the first live message, and forget the removals before it."""
        cdef uint64_t first = self.edges.first, found = 0
        cdef RecordView view
        if self.msgs == 0 or not self.dead.find_absent(first, &found):
            found = self.edges.last + 1
        self.edges.first = found
        if found > first:
            self.dead.discard_run(first, found - 1)
            if self.tombstones.count:
                self.tombstones.discard_run(first, found - 1)
        if found > self.edges.last:
            self.edges.first_time_ns = 0
            self.edges.first_time_is_exact = True
        elif self.blocks.holding(found).view(found, &view) == FOUND:
            self.edges.first_time_ns = view.time_ns
            self.edges.first_time_is_exact = True
        else:
            self.edges.first_time_is_exact = False
        if self.blocks.count > 1 and self.blocks.bases[1] <= found:
            self.retire_blocks()
        return 0

    cdef int retire_blocks(self) except -1:
        """Take away the blocks before the first message, but never the active one."""
        cdef list retired
        cdef uint32_t count = self.blocks.before(self.edges.first)
        if count == 0:
            return 0
        retired = self.blocks.take_front(count)
        if self.is_undoable:
            self.undo_log.retired.extend(retired)
        if self.sparse:
            self.sparse.difference_update(retired)
        return 0

    def delete(self, uint64_t sequence, *, bint erase=False):
        """Remove a message; return whether it was there.

        See Store.delete and Store.erase.

        Raises ColdBlock if its block must be loaded first.
        """
        cdef Outcome outcome
        if self.refusal is not None:
            raise self.refusal()
        outcome = self.remove(sequence, erase)
        if outcome == NEEDS_BLOCK:
            raise ColdBlock(self.wanted)
        if outcome == DONE and (self.needs_care or not self.is_told):
            self.tell()
        return outcome == DONE

    # Limits

    cdef bint is_over(self) noexcept nogil:
        """Return whether a "discard old" limit is exceeded."""
        if self.limit.discard_new:
            return False
        return (
            0 < self.limit.max_msgs < self.msgs
            or 0 < self.limit.max_bytes < self.counted_bytes()
        )

    cdef uint64_t counted_bytes(self) noexcept nogil:
        return self.live_bytes - self.msgs * self.limit.uncounted_bytes

    def set_limits(self, limits):
        """Change the limits; `settle_limits` and EnforcePerSubjectLimit enforce them."""
        self.take_limits(limits)
        self.age_from = 0
        self.is_behind = self.is_over() or len(self.over_limit) > 0

    # Expiry

    cdef int note_expiry(self, int64_t at_ns, uint64_t sequence) except -1:
        cdef Array* dropped = &self.undo_log.expired if self.is_undoable else NULL
        return self.expiries.add(at_ns, sequence, self.edges.first, self.dead, dropped)

    def next_expiry_ns(self):
        """Return the time of the next expiry in ns, or None; see Store.next_expiry_ns.

        The time is a lower bound if the first message's time is not in memory.
        """
        cdef Expiry soonest
        cdef RecordView view
        cdef uint64_t first = 0
        cdef object at = None
        if self.limit.max_age_ns and self.next_live(max(self.age_from, self.edges.first), &first):
            at = <object> self.edges.first_time_ns + self.limit.max_age_ns
            if first > self.edges.first:
                if self.blocks.holding(first).view(first, &view) == FOUND:
                    at = <object> view.time_ns + self.limit.max_age_ns
        if self.expiries.peek(&soonest):
            at = soonest.at_ns if at is None else min(at, soonest.at_ns)
        return at

    # State

    @property
    def first_sequence(self):
        """Sequence of the first message; last_sequence + 1 if there is none."""
        return self.edges.first

    @property
    def last_sequence(self):
        """Sequence of the last message, or the last reserved one."""
        return self.edges.last

    @property
    def last_time_ns(self):
        """Time of the last message in ns."""
        return self.edges.last_time_ns

    @property
    def presence_bytes(self):
        """Bytes of memory for the filters that tell which blocks have which subjects."""
        return self.blocks.presence_bytes()

    @property
    def active(self):
        """The block that is appended to; None: there is none."""
        return self.blocks.active

    @property
    def all_blocks(self):
        """The blocks in sequence order, the active one last."""
        return tuple(self.blocks.blocks)

    def block_with(self, uint64_t sequence):
        """Return the block that contains or contained this sequence; None: the log has no block."""
        return self.blocks.holding(sequence) if self.blocks.count else None

    def set_last_time(self, int64_t time_ns):
        """Set the time of a last message that is gone, for a log made from another source."""
        self.edges.last_time_ns = time_ns

    def state(self, *, bint with_deleted=False):
        """Return the log's StoreState; see Store.state.

        The first message's time is a lower bound while its block is not in memory.
        """
        cdef RecordView view
        if not self.edges.first_time_is_exact and self.msgs:
            if self.blocks.holding(self.edges.first).view(self.edges.first, &view) == FOUND:
                self.edges.first_time_ns = view.time_ns
                self.edges.first_time_is_exact = True
        return StoreState(
            msgs=self.msgs, bytes=self.counted_bytes(),
            first_sequence=self.edges.first if self.edges.last else 0,
            first_time_ns=self.edges.first_time_ns, last_sequence=self.edges.last,
            last_time_ns=self.edges.last_time_ns, num_subjects=self.subjects.count,
            num_deleted=self.dead.count, deleted=self.dead.copy() if with_deleted else None,
        )

    # At once

    def clear(self, uint64_t next_sequence):
        """Empty the log; return how many messages were removed.

        The next message gets `next_sequence`.
        """
        cdef uint64_t removed = self.msgs
        cdef Replaced old
        if self.is_undoable:
            old = Replaced()
            old.edges = self.edges
            old.msgs = self.msgs
            old.live_bytes = self.live_bytes
            old.subjects = self.subjects
            old.dead = self.dead
            old.blocks = self.blocks
            old.undo_log = self.undo_log
            self.replaced.append(old)
        self.subjects = self.subjects.successor()
        self.dead = SequenceSet()
        self.blocks = BlockList()
        self.over_limit.clear()
        self.sparse.clear()
        self.tombstones.empty()
        self.msgs = self.live_bytes = 0
        self.age_from = 0
        self.is_behind = False
        self.edges.first = next_sequence
        self.edges.last = next_sequence - 1
        self.edges.first_time_ns = 0
        self.edges.first_time_is_exact = True
        if self.is_undoable:
            self.begin_undo_log()
        if self.observer is not None:
            self.observer.emptied()
        return removed

    def replace_block(self, MsgBlock old not None, MsgBlock new not None):
        """Replace a block by one with the same live messages and slots, smaller or cut."""
        self.blocks.replace(old, new)
        self.sparse.discard(old)

    def drop_block(self, MsgBlock block not None):
        """Drop a block without live messages that is not the active one.

        Only allowed once the removals of its messages cannot be undone any more.
        """
        assert block.message_count == 0 and block is not self.blocks.active
        self.blocks.remove(block)
        self.sparse.discard(block)

    def refuse_changes(self, error):
        """Raise `error()` for every change from now on: the log is closed or read-only."""
        self.refusal = error

    def cut(self, uint64_t sequence):
        """End the log at `sequence`; all messages above must have been removed durably.

        A log with LogCommits is cut by these.

        Returns (blocks that lie wholly above, the block to rewrite without its part above, or
        None).
        """
        cdef RecordView view
        cdef uint32_t keep
        if sequence >= self.edges.last:
            return [], None
        if sequence + 1 <= self.edges.first:
            self.edges.first = sequence + 1
        else:
            self.dead.discard_run(sequence + 1, self.edges.last)
        self.edges.last = sequence
        self.age_from = 0
        if self.is_here(sequence) and self.blocks.holding(sequence).view(sequence, &view) == FOUND:
            self.edges.last_time_ns = view.time_ns
        keep = 0
        while keep < self.blocks.count and self.blocks.bases[keep] <= sequence:
            keep += 1
        beyond = self.blocks.take_back(keep)
        if self.blocks.active is not None and self.blocks.active.last_sequence > sequence:
            return beyond, self.blocks.active
        return beyond, None

    @property
    def undo_bytes(self):
        """Bytes of memory kept only for a rollback: commit before this grows large."""
        return self.undo_log.removal_count * sizeof(Removal) if self.is_undoable else 0
