"""Long reads of a log in slices: counting, listing and finding the messages that match.

An Operation does a part of its work in each `step`, which returns whether all is done; between two
steps others may append and remove. A step that needs a block raises ColdBlock; the next one goes on
where it stopped. One unit of budget is about 2 ns: a message, usually judged by the four bytes of
its slot; a subject costs SUBJECT_COST. So a budget of 500,000 makes a slice of a millisecond.

Promise
- Messages that exist from the first step to the last are counted and listed exactly. Messages
  appended meanwhile are left out of counts up to a sequence; messages removed meanwhile may be
  counted.
- Blocks are read only between the bounds that the subject index knows. Subjects that lie wholly in
  the range are counted from the index; only those that begin before the range or end behind it are
  searched for in the blocks, on the shorter side of the range.
- If the log is emptied at once meanwhile, an operation starts again.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.core.routing cimport subject_is_literal, wire_bytes, wire_text
from natsd.store.block.blocks cimport (
    BlockIndex, FOUND, MsgBlock, index_seek, index_sequence,
)
from natsd.store.codec.records cimport RecordView, message_of
from natsd.store.log.subjects cimport Filter, Matches, SlotMarks, Subject, is_exact, sequence_in

from natsd.store.block.cold_block import ColdBlock
from natsd.store.errors import StoreEOF, TooManyResults

cdef enum:
    SUBJECT_COST = 40           # in units of budget
    SUBJECTS_AT_ONCE = 64       # fetched into the cache together, then looked at
    PATTERNS_PER_STEP = 512     # patterns that a step begins to follow: about half a millisecond
    NEXT_MATCH_COST = 32_768    # maximum cost of a call of the log's `next_match`


cdef class Operation:
    """Long work on a log, done in steps; `result` is set when all is done."""

    cpdef bint step(self, uint64_t budget) except? -1:
        """Do a part of the work; return whether all of it is done.

        `budget` limits the part, in units of about 2 ns. Raises ColdBlock if a block must be loaded
        first; the next step goes on where this one stopped.
        """
        if self.subjects is not self.log.subjects:
            self.subjects = self.log.subjects
            self.begin()
        try:
            return self.work(budget)
        finally:
            if self.matches is not None:
                self.matches.pause()

    cdef bint work(self, uint64_t budget) except? -1:
        return True

    cdef int begin(self) except -1:
        self.matches = Matches(self.subjects, self.filter)
        return 0

    cdef int need(self, Outcome outcome) except -1:
        if outcome == NEEDS_BLOCK:
            raise ColdBlock(self.log.wanted)
        return 0


cdef class BlockWalk:
    """A walk over the blocks from one sequence to another, both included, forward or backward.

    Blocks that contain none of the slots searched for are skipped.
    """

    cdef int set(
        self, MessageLog log, SlotMarks marks, uint64_t first, uint64_t last, bint back=False
    ) except -1:
        self.log = log
        self.marks = marks
        self.is_back = back
        self.at = min(last, log.edges.last) if back else max(first, log.edges.first)
        self.upto = max(first, log.edges.first) if back else min(last, log.edges.last)
        self.is_done = self.at < self.upto if back else self.at > self.upto
        return 0

    cdef MsgBlock block(self):
        """Return the block of `at`, or the next that may match, with arrays; None: no more.

        Raises ColdBlock if the block's arrays are not in memory.
        """
        cdef BlockList blocks = self.log.blocks
        cdef MsgBlock block
        cdef uint32_t place
        while not self.is_done and blocks.count:
            place = blocks.place_of(self.at)
            block = blocks.at(place)
            if self.marks is None or blocks.may_have_any(place, self.marks):
                if not block.has_arrays:
                    raise ColdBlock(block)
                return block
            if self.is_back:
                self.passed_back(block, 0)
            else:
                self.at = self.next_base()
                self.is_done = self.at == 0 or self.at > self.upto
        self.is_done = True
        return None

    cdef uint64_t next_base(self) noexcept:
        """Return the first sequence of the block behind `at`; 0: there is none."""
        cdef uint32_t place = self.log.blocks.place_of(self.at) + 1
        return self.log.blocks.bases[place] if place < self.log.blocks.count else 0

    cdef int passed(self, MsgBlock block, uint32_t place) noexcept:
        """Go on forward at `place` of the block: the places before it are done."""
        if place < block.index.count:
            self.at = index_sequence(&block.index, place)
        else:
            self.at = self.next_base()
        self.is_done = self.at == 0 or self.at > self.upto
        return 0

    cdef int passed_back(self, MsgBlock block, uint32_t place) noexcept:
        """Go on backward before `place` of the block: that place and later ones are done."""
        if place > 0:
            self.at = index_sequence(&block.index, place - 1)
        else:
            self.at = block.base_sequence - 1
        self.is_done = (
            self.at < self.upto or place == 0 and self.log.blocks.bases[0] == block.base_sequence
        )
        return 0


cdef inline uint32_t places_until(BlockIndex* index, uint64_t upto) noexcept:
    """Return how many places of the block are at or before `upto`."""
    return <uint32_t> index_seek(index, upto + 1)


cdef uint64_t count_marked(
    BlockIndex* index, uint32_t place, uint32_t end, SlotMarks marks
) noexcept:
    cdef uint64_t found = 0
    for place in range(place, end):
        if is_live(index.offsets[place]) and marks.has(index.slots[place]):
            found += 1
    return found


cdef class NumPending(Operation):
    def __init__(
        self, MessageLog log not None, Filter wanted not None, uint64_t from_sequence,
        bint last_per_subject=False, uint64_t up_to_sequence=0,
    ):
        """Count the messages that match, from `from_sequence` to `up_to_sequence`.

        `up_to_sequence` 0: to the end. With `last_per_subject`, only the last message of each
        subject counts. `result` is (count, last sequence that was considered).
        """
        self.log = log
        self.filter = wanted
        self.first = from_sequence
        self.last_only = last_per_subject
        self.through = min(up_to_sequence, log.edges.last) if up_to_sequence else log.edges.last

    cdef int begin(self) except -1:
        Operation.begin(self)
        self.partial = SlotMarks()
        self.counted = SlotMarks()
        self.found = self.partial_count = self.high = 0
        self.low = ~<uint64_t> 0
        self.has_late = self.is_scanning = False
        return 0

    cdef int removed(self, uint64_t sequence, uint32_t slot) except -1:
        """Exclude a message that is about to be removed, however far counting has come.

        Not for use with `last_per_subject`.
        """
        assert not self.last_only
        if (
            sequence > self.through or self.subjects is not self.log.subjects
            or not self.counted.has(slot)
        ):
            return 0            # not counted, now or later
        if not self.partial.has(slot):
            self.found -= sequence >= self.first
        elif not self.is_scanning:
            self.partial_count -= 1
        elif self.is_below:     # all were counted; the scan subtracts those before the range
            self.found -= (
                sequence >= self.first or sequence >= self.scan.at and not self.scan.is_done
            )
        elif sequence >= self.first and (self.scan.is_done or sequence < self.scan.at):
            self.found -= 1
        return 0

    cdef bint work(self, uint64_t budget) except? -1:
        if self.first > self.through:
            return self.finish()
        if self.filter.is_everything and not self.last_only:
            self.found = self.log.live_below(self.through + 1) - self.log.live_below(self.first)
            return self.finish()
        if not self.is_scanning and not self.count_subjects(budget // SUBJECT_COST + 1):
            return False
        return self.count_messages(budget)

    cdef bint finish(self):
        self.result = self.found, self.through
        return True

    cdef bint count_subjects(self, uint64_t subjects_max) except? -1:
        cdef int64_t[SUBJECTS_AT_ONCE] slots
        cdef int count
        cdef int at
        cdef uint32_t stop = self.matches.pattern + PATTERNS_PER_STEP
        for _ in range(subjects_max // SUBJECTS_AT_ONCE + 1):
            count = self.matches.take(slots, SUBJECTS_AT_ONCE)
            if count == 0 and self.matches.pattern == self.filter.count:
                self.begin_scan()
                return True
            for at in range(count):
                self.count_subject(slots[at])
            if self.matches.pattern >= stop:
                break
        return False

    cdef int count_subject(self, int64_t slot) except -1:
        cdef Subject* record = self.subjects.record(slot)
        self.counted.mark(<uint32_t> slot)
        if sequence_in(record.last) < self.first or sequence_in(record.first) > self.through:
            return 0
        if self.last_only:
            self.count_last(slot, record)
        elif sequence_in(record.first) >= self.first and sequence_in(record.last) <= self.through:
            self.found += record.count
        else:
            self.note_partial(slot, record)
        return 0

    cdef int count_last(self, int64_t slot, Subject* record) except -1:
        """Count the subject if its last message lies in the range."""
        cdef uint64_t last = 0
        if sequence_in(record.first) < self.first and not is_exact(record.last):
            if exact_last(self.log, slot, &last) != DONE:
                self.note_partial(slot, record)     # the backward scan finds its last message
                return 0
        self.found += sequence_in(record.last) >= self.first
        return 0

    cdef int note_partial(self, int64_t slot, Subject* record) except -1:
        self.partial.mark(<uint32_t> slot)
        self.partial_count += record.count
        self.low = min(self.low, sequence_in(record.first))
        self.high = max(self.high, sequence_in(record.last))
        self.has_late = self.has_late or sequence_in(record.last) > self.through
        return 0

    cdef int begin_scan(self) except -1:
        """Scan the shorter part of the partial subjects' messages.

        That is the part in the range, or the part before it, if the number of messages is known and
        none lies behind the range.
        """
        cdef uint64_t low = max(self.low, self.log.edges.first)
        cdef uint64_t high = min(self.high, self.through)
        self.is_scanning = True
        self.scan = BlockWalk()
        self.is_below = (
            not self.last_only and not self.has_late and low < self.first
            and self.first - low < high - min(high, self.first)
        )
        if self.partial.count == 0:
            self.scan.is_done = True
        elif self.last_only:
            self.scan.set(self.log, self.partial, self.first, high, True)
        elif self.is_below:
            self.found += self.partial_count
            self.scan.set(self.log, self.partial, low, self.first - 1)
        else:
            self.scan.set(self.log, self.partial, max(self.first, low), high)
        return 0

    cdef bint count_messages(self, uint64_t budget) except? -1:
        cdef MsgBlock block
        cdef uint32_t place, end
        cdef uint64_t found
        while not self.scan.is_done and budget > 0:
            block = self.scan.block()
            if block is None:
                break
            if self.last_only:
                budget -= self.count_lasts(block, budget)
                continue
            place = <uint32_t> index_seek(&block.index, self.scan.at)
            end = <uint32_t> min(places_until(&block.index, self.scan.upto), place + budget)
            found = count_marked(&block.index, place, end, self.partial)
            if self.is_below:
                self.found -= found
            else:
                self.found += found
            budget -= min(budget, max(end - place, 1))
            self.scan.passed(block, end)
        return self.finish() if self.scan.is_done else False

    cdef uint64_t count_lasts(self, MsgBlock block, uint64_t budget) except? 0:
        """Count last messages, walking backward: the first message met of each subject is its last.

        Returns the spent budget.
        """
        cdef uint32_t end = places_until(&block.index, self.scan.at)
        cdef uint32_t stop = <uint32_t> (end - min(budget, end)), place = end
        cdef uint32_t slot
        while place > stop and self.partial.count:
            place -= 1
            slot = block.index.slots[place]
            if is_live(block.index.offsets[place]) and self.partial.has(slot):
                self.partial.unmark(slot)
                self.found += index_sequence(&block.index, place) >= self.first
        self.scan.passed_back(block, place)
        self.scan.is_done = self.scan.is_done or self.partial.count == 0
        return min(budget, max(end - place, 1))


cdef class MultiLast(Operation):
    """The last message of each matching subject; `result` is a sorted list of sequences.

    `up_to_sequence` 0: to the end. Raises TooManyResults for more than `max_allowed` > 0 results.
    """
    cdef BlockWalk scan
    cdef SlotMarks wanted
    cdef list sequences
    cdef uint64_t upto, low, high
    cdef int64_t max_allowed

    def __init__(
        self, MessageLog log not None, Filter wanted not None, uint64_t up_to_sequence=0,
        int64_t max_allowed=-1,
    ):
        self.log = log
        self.filter = wanted
        self.upto = min(up_to_sequence or log.edges.last, log.edges.last)
        self.max_allowed = max_allowed

    cdef int begin(self) except -1:
        Operation.begin(self)
        self.wanted = SlotMarks()
        self.sequences = []
        self.scan = None
        self.low = ~<uint64_t> 0
        self.high = 0
        return 0

    cdef bint work(self, uint64_t budget) except? -1:
        if self.scan is None and not self.list_subjects(budget // SUBJECT_COST + 1):
            return False
        while not self.scan.is_done and budget > 0:
            budget -= self.look_back(budget)
        if not self.scan.is_done:
            return False
        self.result = sorted(self.sequences)
        return True

    cdef int add(self, uint64_t sequence) except -1:
        self.sequences.append(sequence)
        if 0 < self.max_allowed < len(self.sequences):
            raise TooManyResults()
        return 0

    cdef bint list_subjects(self, uint64_t subjects_max) except? -1:
        cdef int64_t slot
        cdef Subject* record
        cdef uint32_t stop = self.matches.pattern + PATTERNS_PER_STEP
        for _ in range(subjects_max):
            if self.matches.pattern >= stop:
                return False
            slot = self.matches.next()
            if slot < 0 and self.matches.pattern < self.filter.count:
                return False
            if slot < 0:
                self.scan = BlockWalk()
                self.scan.is_done = self.wanted.count == 0
                if not self.scan.is_done:
                    self.scan.set(
                        self.log, self.wanted, self.low, min(self.high, self.upto), True
                    )
                return True
            record = self.subjects.record(slot)
            if sequence_in(record.first) > self.upto:
                continue
            if is_exact(record.last) and record.last <= self.upto:
                self.add(record.last)
            else:
                self.wanted.mark(<uint32_t> slot)
                self.low = min(self.low, sequence_in(record.first))
                self.high = max(self.high, sequence_in(record.last))
        return False

    cdef uint64_t look_back(self, uint64_t budget) except? 0:
        cdef MsgBlock block = self.scan.block()
        cdef uint32_t end, stop, place, slot
        if block is None:
            return budget
        place = end = places_until(&block.index, self.scan.at)
        stop = <uint32_t> (end - min(budget, end))
        while place > stop and self.wanted.count:
            place -= 1
            slot = block.index.slots[place]
            if is_live(block.index.offsets[place]) and self.wanted.has(slot):
                self.wanted.unmark(slot)
                self.add(index_sequence(&block.index, place))
        self.scan.passed_back(block, place)
        self.scan.is_done = self.scan.is_done or self.wanted.count == 0
        return min(budget, max(end - place, 1))


cdef class SubjectTotals(Operation):
    """The number of messages of each matching subject; `result` is a dict by subject."""
    def __init__(self, MessageLog log not None, Filter wanted not None):
        self.log = log
        self.filter = wanted

    cdef int begin(self) except -1:
        Operation.begin(self)
        self.result = {}
        return 0

    cdef bint work(self, uint64_t budget) except? -1:
        cdef int64_t slot
        for _ in range(budget // (10 * SUBJECT_COST) + 1):
            slot = self.matches.next()
            if slot < 0:
                return True
            name = wire_text(self.matches.name, self.matches.name_len)
            self.result[name] = self.subjects.record(slot).count
        return False


cdef class LastMatch(Operation):
    """The last message that a filter matches; `result` is its sequence, 0: none."""

    cdef uint64_t best
    cdef list bounds            # (bound, slot) of each subject whose exact last sequence is unknown

    def __init__(self, MessageLog log not None, Filter wanted not None):
        self.log = log
        self.filter = wanted

    cdef int begin(self) except -1:
        Operation.begin(self)
        self.best = 0
        self.bounds = []
        return 0

    cdef bint work(self, uint64_t budget) except? -1:
        if self.filter.is_everything:
            if not self.log.live_before(self.log.edges.last, &self.best):
                self.best = 0
        elif not self.look(budget // SUBJECT_COST + 1):
            return False
        self.result = self.best
        return True

    cdef bint look(self, uint64_t subjects_max) except? -1:
        cdef int64_t slot = 0
        cdef uint64_t last = 0
        cdef Subject* record
        cdef uint32_t stop = self.matches.pattern + PATTERNS_PER_STEP
        for _ in range(subjects_max):
            if self.matches.pattern >= stop:
                return False
            slot = self.matches.next()
            if slot < 0 and self.matches.pattern < self.filter.count:
                return False
            if slot < 0:
                break
            record = self.subjects.record(slot)
            if is_exact(record.last):
                self.best = max(self.best, record.last)
            else:
                self.bounds.append((sequence_in(record.last), slot))
        if slot >= 0:
            return False
        self.bounds.sort()
        while self.bounds and self.bounds[-1][0] > self.best:
            slot = self.bounds[-1][1]
            if self.subjects.record(slot).count:
                self.need(exact_last(self.log, slot, &last))
                self.best = max(self.best, last)
            self.bounds.pop()
        return True


cdef class NextMatch(Operation):
    """The first message at or after a sequence that a filter matches; `result` 0: none."""

    cdef uint64_t first, at, upto

    def __init__(self, MessageLog log not None, Filter wanted not None, uint64_t from_sequence):
        self.log = log
        self.filter = wanted
        self.first = max(from_sequence, 1)

    cdef int begin(self) except -1:
        self.result = 0
        self.at = self.first
        self.upto = self.log.edges.last
        return 0

    cdef bint work(self, uint64_t budget) except? -1:
        cdef Outcome outcome
        cdef uint64_t found = 0
        for _ in range(budget // NEXT_MATCH_COST + 1):
            outcome = next_match(self.log, self.filter, self.at, self.upto, &found)
            if outcome == DONE:
                self.result = found
                return True
            if outcome == GONE:
                return True
            self.at = self.log.resume_at
            self.need(outcome)
        return False


cdef class SequenceAt(Operation):
    """The first live message at or after a time, by bisection; `result` is its sequence.

    Times are assumed to grow with the sequences. If there is no such message, `result` is the last
    sequence + 1.
    """

    cdef int64_t time_ns
    cdef uint64_t low, high     # the message lies in low..high - 1, or at `high`

    def __init__(self, MessageLog log not None, int64_t time_ns):
        self.log = log
        self.time_ns = time_ns

    cdef int begin(self) except -1:
        self.low = self.log.edges.first
        self.high = self.log.edges.last + 1
        return 0

    cdef bint work(self, uint64_t budget) except? -1:
        cdef uint64_t found = 0
        while self.low < self.high:
            self.split(self.low + (self.high - self.low) // 2)
        self.result = found if self.log.next_live(self.low, &found) else self.log.edges.last + 1
        return True

    cdef int split(self, uint64_t middle) except -1:
        """Bisect at the first message from `middle` on.

        Lost messages have no time and are skipped.
        """
        cdef RecordView view
        cdef MsgBlock block
        cdef int answer
        cdef uint64_t at = middle
        while self.log.next_live(at, &at) and at < self.high:
            block = self.log.blocks.holding(at)
            answer = block.view(at, &view)
            if answer < 0:
                raise ColdBlock(block)
            if answer == FOUND:
                if view.time_ns >= self.time_ns:
                    self.high = middle
                else:
                    self.low = at + 1
                return 0
            at += 1
        self.high = middle
        return 0


def last_of_subject(MessageLog log not None, subject) -> int | None:
    """Return the sequence of a subject's last message; 0: none; None: `subject` is a pattern.

    Raises ColdBlock if a block must be loaded first.
    """
    cdef bytes name = wire_bytes(subject)
    cdef int64_t slot
    cdef uint64_t last = 0
    if not subject_is_literal(name, len(name)):
        return None
    slot = log.subjects.find(name, len(name))
    if slot < 0 or log.subjects.record(slot).count == 0:
        return 0
    if exact_last(log, slot, &last) != DONE:
        raise ColdBlock(log.wanted)
    return last


def read_batch(
    MessageLog log not None, uint64_t from_sequence, uint64_t messages_max, uint64_t bytes_max
) -> list:
    """Return messages in order from `from_sequence` on, at least one.

    Stops at `messages_max` messages, when `bytes_max` bytes of records are reached, or at a block
    that is not in memory. Raises StoreEOF if there is no message, ColdBlock if the first is not in
    memory.
    """
    cdef list messages = []
    cdef RecordView view
    cdef uint64_t sequence = from_sequence, size = 0
    while log.next_live(sequence, &sequence) and messages_max and size < bytes_max:
        if log.view(sequence, &view) != DONE:
            if not messages:
                raise ColdBlock(log.wanted)
            return messages
        messages.append(message_of(&view))
        size += view.size
        messages_max -= 1
        sequence += 1
    if not messages:
        raise StoreEOF()
    return messages
