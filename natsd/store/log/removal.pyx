"""Removals of many messages in slices: operations like those of search.pyx.

Removals take effect at once. A store that can roll back commits between slices, before the memory
for a rollback (`log.undo_bytes`) grows large. `result` is the number of removed messages.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.store.block.blocks cimport BlockIndex, MsgBlock, OFFSET_MASK, index_seek, index_sequence
from natsd.store.codec.records cimport RecordView
from natsd.store.log.subjects cimport Filter, SlotMarks, Subject, sequence_in

from natsd.store.block.cold_block import ColdBlock

cdef enum:
    REMOVAL_COST = 100          # in units of budget
    REMOVED_SUBJECT_COST = 40
    EXPIRY_COST = 400           # reading the message is included, in random order
    REPLACED_PER_SLICE = 128    # messages that one slice hands out; each costs a publish


cdef class Purge(Operation):
    """Remove the messages that a filter matches.

    Only messages below `up_to_sequence` (0: all that exist when it begins) are removed, and the
    newest `keep` stay. Without any restriction the log is emptied at once.
    """

    cdef SlotMarks marks
    cdef uint64_t upto, keep, at, high, total, removed
    cdef bint is_scanning

    def __init__(
        self, MessageLog log not None, Filter wanted not None, uint64_t up_to_sequence=0,
        uint64_t keep=0,
    ):
        self.log = log
        self.filter = wanted
        self.keep = keep
        self.upto = up_to_sequence - 1 if up_to_sequence else log.edges.last
        self.upto = min(self.upto, log.edges.last)

    cdef int begin(self) except -1:
        Operation.begin(self)
        self.marks = SlotMarks()
        self.total = self.high = 0
        self.at = ~<uint64_t> 0
        self.is_scanning = False
        return 0

    cdef bint work(self, uint64_t budget) except? -1:
        if self.filter.is_everything:
            return self.purge_front(budget // REMOVAL_COST + 1)
        if not self.is_scanning and not self.count_subjects(budget // REMOVED_SUBJECT_COST + 1):
            return False
        return self.purge_matches(budget)

    cdef bint finish(self):
        self.result = self.removed
        return True

    cdef bint purge_front(self, uint64_t removals_max) except? -1:
        if self.keep == 0 and self.upto == self.log.edges.last:
            self.removed += self.log.clear(self.log.edges.last + 1)
            return self.finish()
        while removals_max:
            if self.log.msgs <= self.keep or self.log.edges.first > self.upto:
                return self.finish()
            self.need(self.log.remove(self.log.edges.first, False))
            self.removed += 1
            removals_max -= 1
        return False

    cdef bint count_subjects(self, uint64_t subjects_max) except? -1:
        cdef int64_t slot
        cdef Subject* record
        for _ in range(subjects_max):
            slot = self.matches.next()
            if slot < 0:
                self.is_scanning = True
                self.upto = min(self.upto, self.high)
                self.at = max(self.at, self.log.edges.first)
                return True
            record = self.subjects.record(slot)
            self.marks.mark(<uint32_t> slot)
            self.total += record.count
            self.at = min(self.at, sequence_in(record.first))
            self.high = max(self.high, sequence_in(record.last))
        return False

    cdef bint purge_matches(self, uint64_t budget) except? -1:
        """Remove messages by their slots, between the bounds of the matching subjects."""
        cdef MsgBlock block
        cdef uint32_t place
        cdef uint64_t used
        while budget:
            self.at = max(self.at, self.log.edges.first)
            if self.at > self.upto or self.total <= self.keep or self.log.blocks.count == 0:
                return self.finish()
            place = self.log.blocks.place_of(self.at)
            block = self.log.blocks.at(place)
            if not self.log.blocks.may_have_any(place, self.marks):
                self.leave(block)
                continue
            if not block.has_arrays:
                raise ColdBlock(block)
            used = self.purge_block(block, budget)
            if self.at > block.last_sequence:
                self.leave(block)
            budget -= min(budget, used)
        return False

    cdef int leave(self, MsgBlock block) except -1:
        """Go on to the next block; the log may have retired this one already."""
        cdef uint32_t place = self.log.blocks.place_of(self.at)
        if self.log.blocks.at(place) is block:
            place += 1
            self.at = (
                self.log.blocks.bases[place] if place < self.log.blocks.count else self.upto + 1
            )
        return 0

    cdef uint64_t purge_block(self, MsgBlock block, uint64_t budget) except? 0:
        """Remove the matching messages of a block; return the spent budget.

        Only the slots are read: no message up to `upto` has a subject that was added after the
        marks were made.
        """
        cdef BlockIndex* index = &block.index
        cdef uint32_t place = <uint32_t> index_seek(index, self.at)
        cdef uint32_t end = <uint32_t> index_seek(index, self.upto + 1)
        cdef uint64_t used = 0
        while place < end and used < budget and self.total > self.keep:
            if 0 < index.offsets[place] <= OFFSET_MASK and self.marks.has(index.slots[place]):
                self.at = index_sequence(index, place)
                self.need(self.log.remove(self.at, False))
                self.removed += 1
                self.total -= 1
                used += REMOVAL_COST
            used += 1
            place += 1
        self.at = index_sequence(index, place) if place < index.count else block.last_sequence + 1
        return used + 1


cdef class Compact(Operation):
    """Remove everything below a sequence; beyond the end, the log then continues there."""

    cdef uint64_t sequence, removed

    def __init__(self, MessageLog log not None, uint64_t sequence):
        self.log = log
        self.sequence = sequence

    cdef int begin(self) except -1:
        return 0

    cdef bint work(self, uint64_t budget) except? -1:
        if self.sequence > self.log.edges.last:
            self.removed += self.log.clear(self.sequence)
        for _ in range(budget // REMOVAL_COST + 1):
            if self.log.msgs == 0 or self.log.edges.first >= self.sequence:
                self.result = self.removed
                return True
            self.need(self.log.remove(self.log.edges.first, False))
            self.removed += 1
        return False


cdef class RemoveAbove(Operation):
    """Remove everything above a sequence; the log's `cut` must follow and move the end."""

    cdef uint64_t sequence, removed

    def __init__(self, MessageLog log not None, uint64_t sequence):
        self.log = log
        self.sequence = sequence

    cdef int begin(self) except -1:
        return 0

    cdef bint work(self, uint64_t budget) except? -1:
        cdef uint64_t last = 0
        for _ in range(budget // REMOVAL_COST + 1):
            if not self.log.live_before(self.log.edges.last, &last) or last <= self.sequence:
                self.result = self.removed
                return True
            self.need(self.log.remove(last, False))
            self.removed += 1
        return False


cdef class Expire(Operation):
    """Remove the messages that exceed `max_age` at a given time, or expire by themselves by then.

    Ages are checked from the front up to the first message that is young enough. A message that
    never expires is skipped, and not checked again.

    With `is_replacing`, a message that is the last of its subject stays, and its (sequence,
    subject, headers) is added to `last`. The caller must remove or replace these messages after the
    step, before any other change of the log, and then call `replaced`.
    """

    cdef int64_t now_ns
    cdef readonly list last     # or None if not replacing
    cdef dict noted             # sequence -> its own expiry in ns, 0: by age; for all in `last`
    cdef uint64_t passed        # messages below are removed, stay, or are in `last`

    def __init__(self, MessageLog log not None, int64_t now_ns, bint is_replacing=False):
        self.log = log
        self.now_ns = now_ns
        self.last = [] if is_replacing else None
        self.noted = {}
        self.result = 0

    def replaced(self) -> bool:
        """Note that the messages in `last` were handled.

        Returns whether all of them are gone; a message that is still there will be due again.
        """
        cdef bint is_done = True
        for sequence, at_ns in self.noted.items():
            if not self.log.is_here(sequence):
                self.result += 1
                continue
            is_done = False
            if at_ns:
                self.log.note_expiry(at_ns, sequence)
        self.noted.clear()
        self.last.clear()
        return is_done

    cdef int begin(self) except -1:
        return 0

    cdef bint work(self, uint64_t budget) except? -1:
        for _ in range(budget // EXPIRY_COST + 1):
            if self.last is not None and len(self.last) >= REPLACED_PER_SLICE:
                return False
            if not self.expire_oldest() and not self.expire_soonest():
                return True
        return False

    cdef bint expire_oldest(self) except? -1:
        cdef MessageLog log = self.log
        cdef RecordView view
        cdef uint64_t sequence = 0
        if log.limit.max_age_ns == 0:
            return False
        while log.next_live(max(self.passed, log.age_from, log.edges.first), &sequence):
            self.need(log.view(sequence, &view))
            if sequence == log.edges.first:
                log.edges.first_time_ns = view.time_ns
                log.edges.first_time_is_exact = True
            if view.time_ns > self.now_ns - log.limit.max_age_ns:
                return False
            if view.expires_ns >= 0:
                self.let_go(sequence, &view, 0)
                return True
            self.pass_over(sequence)
        return False

    cdef int pass_over(self, uint64_t sequence) except -1:
        """Skip a message that never expires by age."""
        if self.passed <= max(self.log.age_from, self.log.edges.first):
            self.log.age_from = sequence + 1
        else:
            self.passed = sequence + 1
        return 0

    cdef bint expire_soonest(self) except? -1:
        cdef MessageLog log = self.log
        cdef Expiry soonest
        cdef RecordView view
        cdef bint is_due
        while log.expiries.peek(&soonest) and soonest.at_ns <= self.now_ns:
            is_due = log.is_here(soonest.sequence)
            if is_due:
                self.need(log.view(soonest.sequence, &view))
                is_due = view.expires_ns == soonest.at_ns
            log.expiries.pop()
            if log.is_undoable:
                log.undo_log.note_expired(soonest)
            if is_due:
                self.let_go(soonest.sequence, &view, soonest.at_ns)
                return True
        return False

    cdef int let_go(self, uint64_t sequence, RecordView* view, int64_t at_ns) except -1:
        """Remove an expired message or add it to `last`. `at_ns`: its own expiry; 0: by age."""
        cdef int64_t slot
        if self.last is not None:
            slot = self.log.subjects.find(view.subject, view.subject_len)
            if slot >= 0 and self.log.subjects.record(slot).count == 1:
                if sequence not in self.noted:      # else noted before, because of its age
                    self.last.append((
                        sequence, view.subject[:view.subject_len], view.headers[:view.headers_len]
                    ))
                self.noted[sequence] = at_ns
                if not at_ns:
                    self.passed = sequence + 1
                return 0
        self.need(self.log.remove(sequence, False))
        self.result += 1
        return 0


cdef class EnforcePerSubjectLimit(Operation):
    """Remove what exceeds `max_msgs_per_subject`: it was lowered, or a crash lost removals."""

    cdef int64_t slot

    def __init__(self, MessageLog log not None):
        self.log = log
        self.filter = Filter((b">",))
        self.result = 0

    cdef int begin(self) except -1:
        self.slot = -1
        return Operation.begin(self)

    cdef bint work(self, uint64_t budget) except? -1:
        cdef Outcome outcome
        cdef uint64_t count, first = 0, limit = self.log.limit.max_msgs_per_subject
        cdef int64_t left = <int64_t> min(budget, <uint64_t> 1 << 62)
        while limit and left > 0:
            if self.slot < 0:
                self.slot = self.matches.next()
                left -= REMOVED_SUBJECT_COST
                if self.slot < 0:
                    return True
            count = self.subjects.record(self.slot).count
            if count <= limit:
                self.slot = -1
                continue
            outcome = exact_first(self.log, self.slot, &first)
            self.need(outcome)
            if outcome == GONE:
                first = sequence_in(self.subjects.record(self.slot).first)
            else:
                self.need(self.log.remove(first, False))
            if self.subjects.record(self.slot).count == count:
                self.subjects.unnote(self.slot, first)      # counted, but lost
            left -= REMOVAL_COST
            self.result += 1
        return limit == 0


cdef class Sweep(Operation):
    """Forget the names of subjects without messages that were not at hand at the last removal.

    Works only while nothing can be undone: otherwise a rollback would miss these names.
    """

    def __init__(self, MessageLog log not None):
        self.log = log
        self.filter = Filter((b">",))
        self.result = 0

    cdef int begin(self) except -1:
        Operation.begin(self)
        self.matches.only_ghosts = True
        return 0

    cdef bint work(self, uint64_t budget) except? -1:
        cdef list empty_subjects = []
        cdef bytes name
        cdef int64_t slot
        cdef bint done = True
        if self.log.has_undo():
            return True
        for _ in range(budget // REMOVED_SUBJECT_COST + 1):
            slot = self.matches.next()
            if slot < 0:
                break
            empty_subjects.append((self.matches.name[:self.matches.name_len], slot))
        else:
            done = False
        self.matches.pause()
        for name, slot in empty_subjects:
            self.subjects.forget(name, len(name), slot)
        self.result += len(empty_subjects)
        return done
