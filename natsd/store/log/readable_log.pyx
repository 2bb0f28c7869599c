"""ReadableLog: the queries of a stream's messages, which change nothing.

    by sequence   is_here, next_live, live_before, live_below, view
    by subject    find_slot, find_slot_back, exact_first, exact_last      of one subject
                  next_match                                              all that a filter matches

Promise
- An answer takes all changes so far into account, durable or not.
- A query that needs a block which is not in memory answers NEEDS_BLOCK, with the block in `wanted`;
  the caller loads it and asks again.
- `next_match` makes a Python object only when it collects the few subjects that a filter matches,
  which is rare. It works for some 100 us at most: then it answers PENDING, and `resume_at` says
  where to continue.
- Blocks without any of the wanted slots are skipped.

log.pyx has the changes of a log.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.store.block.blocks cimport (
    COLD, FOUND, Found, MsgBlock, OFFSET_MASK, index_seek, index_sequence,
)
from natsd.store.codec.records cimport RecordView, message_of
from natsd.store.log.slots cimport natsd_slot_back, natsd_slot_from
from natsd.store.log.subjects cimport (
    FEW_SLOTS, Filter, Matches, SlotMarks, Subject, SubjectIndex, is_exact, sequence_in,
)
from natsd.store.sequence_set cimport SequenceSet

from natsd.store.errors import MessageDamaged, MessageNotFound, StoreEOF

cdef enum:
    LINEAR_MAX = 4_096          # messages looked at before the subject index is searched
    LINEAR_MIN = 64             # the same, if the matching subjects are known to be few
    NARROWED_PATTERNS_MAX = 1024    # patterns of a filter that are followed to collect its slots
    LOOKS_MAX = 32_768          # looks in one call of `next_match`; these cost some too:
    VERDICT_LOOKS = 32          # looks that a subject without a verdict costs
    BLOCK_LOOKS = 16            # looks that a skipped block costs


cdef inline bint is_live(uint32_t offset) noexcept nogil:
    return 0 < offset <= OFFSET_MASK


cdef class ReadableLog:
    """The messages of one stream, read-only."""

    def __cinit__(self):
        self.subjects = SubjectIndex()
        self.dead = SequenceSet()
        self.blocks = BlockList()

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

    # By subject

    cdef Outcome find_slot(
        self, uint32_t slot, uint64_t sequence, uint64_t upto, uint64_t* found
    ) except? NEEDS_BLOCK:
        """Find the first live message of that slot in sequence..upto."""
        cdef uint32_t at, place, end
        cdef MsgBlock block
        sequence = max(sequence, self.edges.first)
        upto = min(upto, self.edges.last)
        if sequence > upto or self.blocks.count == 0:
            return GONE
        for at in range(self.blocks.place_of(sequence), self.blocks.count):
            if self.blocks.bases[at] > upto:
                break
            if not self.blocks.may_have(at, slot):
                continue
            block = self.blocks.at(at)
            if not block.has_arrays:
                self.wanted = block
                return NEEDS_BLOCK
            place = <uint32_t> index_seek(&block.index, sequence)
            end = block.index.count
            while True:
                place = natsd_slot_from(block.index.slots, place, end, slot)
                if place == end:
                    break
                if is_live(block.index.offsets[place]):
                    found[0] = index_sequence(&block.index, place)
                    return DONE if found[0] <= upto else GONE
                place += 1
        return GONE

    cdef Outcome find_slot_back(
        self, uint32_t slot, uint64_t sequence, uint64_t downto, uint64_t* found
    ) except? NEEDS_BLOCK:
        """Find the last live message of that slot in downto..sequence."""
        cdef uint32_t end, at
        cdef MsgBlock block
        sequence = min(sequence, self.edges.last)
        downto = max(downto, self.edges.first)
        if sequence < downto or self.blocks.count == 0:
            return GONE
        at = self.blocks.place_of(sequence) + 1
        while at > 0:
            at -= 1
            if not self.blocks.may_have(at, slot):
                if self.blocks.bases[at] <= downto:
                    break
                continue
            block = self.blocks.at(at)
            if not block.has_arrays:
                self.wanted = block
                return NEEDS_BLOCK
            end = <uint32_t> index_seek(&block.index, sequence + 1)
            while True:
                end = natsd_slot_back(block.index.slots, 0, end, slot)
                if end == 0:
                    break
                end -= 1
                if is_live(block.index.offsets[end]):
                    found[0] = index_sequence(&block.index, end)
                    return DONE if found[0] >= downto else GONE
            if self.blocks.bases[at] <= downto:
                break
        return GONE

    cdef Outcome exact_first(self, int64_t slot, uint64_t* found) except? NEEDS_BLOCK:
        """Find the first message of a subject that has messages."""
        cdef Subject* record = self.subjects.record(slot)
        cdef Outcome outcome
        found[0] = record.first
        if is_exact(record.first):
            return DONE
        outcome = self.find_slot(
            <uint32_t> slot, sequence_in(record.first), sequence_in(record.last), found
        )
        if outcome == DONE:
            self.subjects.set_first(slot, found[0])
        return outcome

    cdef Outcome exact_last(self, int64_t slot, uint64_t* found) except? NEEDS_BLOCK:
        """Find the last message of a subject that has messages."""
        cdef Subject* record = self.subjects.record(slot)
        cdef Outcome outcome
        found[0] = record.last
        if is_exact(record.last):
            return DONE
        outcome = self.find_slot_back(
            <uint32_t> slot, sequence_in(record.last), sequence_in(record.first), found
        )
        if outcome == DONE:
            self.subjects.set_last(slot, found[0])
        return outcome

    # By filter

    cdef Outcome next_match(
        self, Filter wanted, uint64_t sequence, uint64_t upto, uint64_t* found
    ) except? NEEDS_BLOCK:
        cdef Outcome outcome
        cdef SlotMarks few
        sequence = self.resume_at = max(sequence, self.edges.first)
        upto = min(upto, self.edges.last)
        if sequence > upto or self.blocks.count == 0:
            return GONE
        if wanted.is_everything:
            return DONE if self.next_live(sequence, found) and found[0] <= upto else GONE
        if wanted.is_literal:
            return self.next_of_subject(wanted, sequence, upto, found)
        few = self.few_slots(wanted)
        outcome = self.look(
            wanted, None, sequence, upto, LINEAR_MAX if few is None else LINEAR_MIN, found
        )
        if outcome != PENDING:
            return outcome
        if few is None:
            few = self.narrow(wanted)
        if few is not None and not self.bounds(few, &self.resume_at, &upto):
            return GONE
        return self.look(wanted, few, self.resume_at, upto, LOOKS_MAX, found)

    cdef Outcome next_of_subject(
        self, Filter wanted, uint64_t sequence, uint64_t upto, uint64_t* found
    ) except? NEEDS_BLOCK:
        """Find the next message of the filter's only subject, between the bounds in its record."""
        cdef int64_t slot = self.subjects.find(wanted.each.text, wanted.each.length)
        cdef Subject* record
        if slot < 0 or self.subjects.record(slot).count == 0:
            return GONE
        record = self.subjects.record(slot)
        if is_exact(record.first) and record.first >= sequence:
            found[0] = record.first
            return DONE if record.first <= upto else GONE
        return self.find_slot(
            <uint32_t> slot, max(sequence, sequence_in(record.first)),
            min(upto, sequence_in(record.last)), found,
        )

    cdef Outcome look(
        self, Filter wanted, SlotMarks few, uint64_t sequence, uint64_t upto, int64_t looks,
        uint64_t* found,
    ) except? NEEDS_BLOCK:
        """Look at message after message until one matches.

        A message matches if its slot is in `few`, or, if that is None, if the filter matches its
        subject. PENDING: `looks` are used up.
        """
        cdef MsgBlock block
        cdef uint32_t at = self.blocks.place_of(sequence)
        cdef Outcome outcome
        while at < self.blocks.count and self.blocks.bases[at] <= upto:
            self.resume_at = max(sequence, self.blocks.bases[at])
            if looks <= 0:
                return PENDING
            looks -= BLOCK_LOOKS
            if few is None or self.blocks.may_have_any(at, few):
                block = self.blocks.at(at)
                if not block.has_arrays:
                    self.wanted = block
                    return NEEDS_BLOCK
                outcome = self.look_into(block, wanted, few, upto, &looks, found)
                if outcome != GONE:
                    return outcome
            at += 1
        return GONE

    cdef Outcome look_into(
        self, MsgBlock block, Filter wanted, SlotMarks few, uint64_t upto, int64_t* looks,
        uint64_t* found,
    ) except? NEEDS_BLOCK:
        """Look at one block's messages from `resume_at` on; GONE: none up to `upto` matches."""
        cdef uint32_t place = <uint32_t> index_seek(&block.index, self.resume_at)
        cdef uint32_t end = <uint32_t> index_seek(&block.index, upto + 1)
        cdef int verdict
        while place < end:
            if looks[0] <= 0:
                self.resume_at = index_sequence(&block.index, place)
                return PENDING
            looks[0] -= 1
            if is_live(block.index.offsets[place]):
                if few is not None:
                    verdict = few.has(block.index.slots[place])
                else:
                    verdict = wanted.known(self.subjects, block.index.slots[place])
                    if verdict < 0:
                        looks[0] -= VERDICT_LOOKS
                        verdict = self.ask(block, wanted, place)
                        if verdict < 0:
                            return NEEDS_BLOCK
                if verdict:
                    found[0] = index_sequence(&block.index, place)
                    return DONE
            place += 1
        return GONE

    cdef int ask(self, MsgBlock block, Filter wanted, uint32_t place) except? -1:
        """Return the filter's verdict on a new subject; -1: the subject's name is not in memory."""
        cdef uint64_t sequence = index_sequence(&block.index, place)
        cdef uint32_t slot = block.index.slots[place]
        cdef RecordView view
        cdef bint verdict
        cdef Found answer = block.view(sequence, &view)
        if answer == COLD:
            self.wanted = block
            self.resume_at = sequence
            return -1
        if answer != FOUND:
            return 0
        verdict = wanted.matches(view.subject, view.subject_len)
        wanted.learn(self.subjects, slot, verdict)
        return verdict

    cdef SlotMarks few_slots(self, Filter wanted):
        """Return the slots that the filter matches, if they are known and few; else None."""
        if wanted.arrivals != self.subjects.arrivals:
            return None
        return wanted.few

    cdef SlotMarks narrow(self, Filter wanted):
        """Collect the slots that the filter matches; None: the slots or the patterns are many.

        The result is valid until a subject gets its first message.
        """
        cdef SlotMarks few = SlotMarks()
        cdef Matches matches
        cdef int64_t slot = 0
        cdef bint is_all = False
        if wanted.arrivals == self.subjects.arrivals:
            return wanted.few
        matches = Matches(self.subjects, wanted)
        try:
            while few.marked < FEW_SLOTS and matches.pattern <= NARROWED_PATTERNS_MAX:
                slot = matches.next()
                if slot >= 0:
                    few.mark(<uint32_t> slot)
                elif matches.pattern == wanted.count:
                    is_all = True
                    break
        finally:
            matches.pause()
        wanted.few = few if is_all else None
        wanted.arrivals = self.subjects.arrivals
        return wanted.few

    cdef bint bounds(self, SlotMarks few, uint64_t* sequence, uint64_t* upto) noexcept:
        """Narrow a range to where those slots can have messages; return whether any is left."""
        cdef uint64_t low = ~<uint64_t> 0, high = 0
        cdef uint32_t at
        cdef Subject* record
        for at in range(few.marked):
            record = self.subjects.record(few.few[at])
            if record.count and sequence_in(record.last) >= sequence[0]:
                low = min(low, sequence_in(record.first))
                high = max(high, sequence_in(record.last))
        sequence[0] = max(sequence[0], low)
        upto[0] = min(upto[0], high)
        return sequence[0] <= upto[0]

    # The whole log

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
