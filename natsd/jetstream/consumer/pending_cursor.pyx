"""The messages that a consumer has still to read in its stream, and their number: `num_pending`.

    start list (last_per_subject)     ▪ ▪ ▪ ▪    sequences in order, then go on at `next`
    messages       · · ▪ · ▪ ▪ · · ▪ · ▪         those that match and are visible
                         ▲ next      ▲ visible

How the number stays right, whatever is removed in whatever order:
- Without a filter it is arithmetic on the log: live messages below `visible` less those below
  `next`. It costs a look at each page of removed sequences, once for a slice of deliveries.
- With a filter it is counted once (NumPending, by subjects, in slices) and then kept: plus one for
  each match that becomes visible, minus one for each that is read or removed. A removal during the
  count is reported to the counting too, which knows how far it has come (it may count what lies
  before the range, to subtract it). Nothing is delivered until the count is complete.
- Entries of the start list whose messages are removed are marked; a consumer with a start list is
  told of every removal until the list is read.
- When the search comes to the end, nothing is pending: an error in the count, if there was one,
  ends there.

Memory: 8 bytes for each entry of the start list until it is read; during a count one bit for each
subject, and one for each subject that has only a part of its messages in the range.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc

from natsd.store.block.blocks cimport MsgBlock, NO_SLOT
from natsd.store.codec.records cimport RecordView
from natsd.store.log.message_log cimport (
    DONE, GONE, MessageLog, NEEDS_BLOCK, NumPending, Outcome, PENDING, next_match,
)
from natsd.store.log.subjects cimport Filter

from natsd.store.errors import MessageDamaged

cdef extern from *:
    """
    #define NATSD_GONE_BIT ((uint64_t)1 << 63)
    """
    uint64_t GONE_BIT "NATSD_GONE_BIT"


cdef class PendingCursor:
    def __cinit__(self, MessageLog log not None):
        self.log = log

    def __dealloc__(self):
        free(self.starts)

    @property
    def is_counting(self):
        """Whether `size` is not exact yet."""
        return self.must_count or self.counting is not None

    cdef int set_filter(self, Filter wanted) except -1:
        """Set the filter; None or `>`: every message."""
        self.filter = None if wanted is None or wanted.is_everything else wanted
        return self.look_again(self.next)

    cdef int begin(self, uint64_t next_sequence, uint64_t resume, starts) except -1:
        cdef Py_ssize_t at
        self.free_starts()
        if starts:
            self.starts = <uint64_t*> malloc(len(starts) * sizeof(uint64_t))
            if self.starts == NULL:
                raise MemoryError
            for at in range(len(starts)):
                self.starts[at] = starts[at]
            self.start_count = self.starts_live = len(starts)
            next_sequence = max(resume, self.starts[self.start_count - 1]) + 1
        self.first = max(next_sequence, 1)
        return self.look_again(self.first)

    cdef int look_again(self, uint64_t from_sequence) except -1:
        self.next = self.search_from = from_sequence
        self.count = 0
        self.counting = None
        self.must_count = self.filter is not None
        return 0

    # Changes of messages

    cdef int appeared(self, uint64_t sequence) except -1:
        if sequence >= self.next and not self.must_count:
            if self.counting is None or sequence > self.counting.through:
                self.count += 1
        return 0

    cdef int vanished(self, uint64_t sequence) except -1:
        cdef MsgBlock block
        if sequence < self.next:
            self.drop_start(sequence)
            if self.counting is None:
                return 0
        elif self.filter is None or self.must_count:
            return 0
        elif self.counting is None or sequence > self.counting.through:
            self.count -= 1
            return 0
        block = self.log.blocks.holding(sequence)
        if block is not None and block.has_arrays and block.slot_of(sequence) != NO_SLOT:
            return self.counting.removed(sequence, block.slot_of(sequence))
        self.counting = None            # the subject is unknown: begin anew
        self.must_count = True
        return 0

    cdef bint is_unread(self, uint64_t sequence) noexcept:
        return sequence >= self.next or self.place_of_start(sequence) >= 0

    cdef int passed(self, uint64_t sequence) except -1:
        if self.start_at < self.start_count and sequence < self.next:
            self.start_at += 1
            self.starts_live -= 1
            if self.start_at == self.start_count:
                self.free_starts()
            return 0
        assert sequence >= self.next and not self.is_counting
        self.next = self.search_from = sequence + 1
        self.count -= self.filter is not None
        return 0

    # The number of messages to read

    cdef bint count_some(self, uint64_t visible, uint64_t budget) except? -1:
        if self.must_count:
            self.must_count = False
            self.count = 0
            if visible < self.next:
                return True
            self.counting = NumPending(self.log, self.filter, self.next, False, visible)
        if self.counting is None:
            return True
        if not self.counting.step(budget):
            return False
        self.count += <int64_t> self.counting.found
        self.counting = None
        return True

    cdef int64_t size(self, uint64_t visible) noexcept:
        cdef int64_t count = self.count
        if self.filter is None:
            count = 0
            if visible >= self.next:
                count = <int64_t> (
                    self.log.live_below(visible + 1) - self.log.live_below(self.next)
                )
        return max(count, 0) + self.starts_live

    # The next message

    cdef Outcome find(self, uint64_t visible, uint64_t* found) except? NEEDS_BLOCK:
        cdef Outcome outcome
        if self.start_at < self.start_count:
            found[0] = self.next_start()
            if found[0]:
                return DONE
        if visible < self.search_from:
            return GONE
        if self.filter is None:
            outcome = GONE
            if self.log.next_live(self.search_from, found) and found[0] <= visible:
                outcome = DONE
        else:
            outcome = next_match(self.log, self.filter, self.search_from, visible, found)
        if outcome == DONE:
            self.search_from = found[0]
        elif outcome == PENDING:
            self.search_from = self.log.resume_at
        elif outcome == GONE:
            self.next = self.search_from = visible + 1
            self.count = 0
        return outcome

    cdef Outcome look(self, uint64_t sequence, RecordView* view) except? NEEDS_BLOCK:
        """View a message to be read. GONE: it is removed or damaged."""
        if not self.log.is_here(sequence):
            return GONE
        try:
            return self.log.view(sequence, view)
        except MessageDamaged:
            return GONE

    # The start list

    cdef uint64_t next_start(self) noexcept:
        """Return the next entry whose message is still there; 0: the list is read."""
        cdef uint64_t sequence
        while self.start_at < self.start_count:
            sequence = self.starts[self.start_at]
            if not sequence & GONE_BIT:
                if self.log.is_here(sequence):
                    return sequence
                self.starts_live -= 1
            self.start_at += 1
        self.free_starts()
        return 0

    cdef Py_ssize_t place_of_start(self, uint64_t sequence) noexcept nogil:
        """Return the index of a sequence among the entries not read yet, or -1."""
        cdef Py_ssize_t low = self.start_at, high = self.start_count - 1, middle
        cdef uint64_t there
        while low <= high:
            middle = (low + high) // 2
            there = self.starts[middle] & ~GONE_BIT
            if there == sequence:
                return middle
            if there < sequence:
                low = middle + 1
            else:
                high = middle - 1
        return -1

    cdef int drop_start(self, uint64_t sequence) except -1:
        cdef Py_ssize_t at = self.place_of_start(sequence)
        if at >= 0 and not self.starts[at] & GONE_BIT:
            self.starts[at] = self.starts[at] | GONE_BIT
            self.starts_live -= 1
        return 0

    cdef int free_starts(self) except -1:
        free(self.starts)
        self.starts = NULL
        self.start_at = self.start_count = self.starts_live = 0
        return 0

    @property
    def memory_bytes(self):
        """Bytes of the start list."""
        return self.start_count * sizeof(uint64_t)

    # For tests

    def begin_at(self, uint64_t next_sequence, filters) -> None:
        """Begin at a sequence with filters."""
        self.set_filter(Filter(filters) if filters else None)
        self.begin(next_sequence, 0, None)

    def count_slice(self, uint64_t visible, uint64_t budget) -> bool:
        """Count for a while. True: everything is counted."""
        return self.count_some(visible, budget)

    def tell_appeared(self, uint64_t sequence) -> None:
        """Note that a message became visible."""
        self.appeared(sequence)

    def tell_vanished(self, uint64_t sequence) -> None:
        """Note that a message was removed."""
        self.vanished(sequence)

    def num_pending(self, uint64_t visible) -> int:
        """Return the number of visible messages to be read."""
        return self.size(visible)
