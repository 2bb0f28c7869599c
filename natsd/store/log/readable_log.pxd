"""ReadableLog for compiled callers."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.store.block.blocks cimport MsgBlock
from natsd.store.codec.records cimport RecordView
from natsd.store.log.subjects cimport Filter, SlotMarks, SubjectIndex
from natsd.store.sequence_set cimport SequenceSet


cdef enum Outcome:
    GONE = 0                    # there is no such message
    DONE = 1
    NEEDS_BLOCK = 2             # the block in `wanted` is not in memory
    PENDING = 3                 # not found yet: continue at `resume_at`


cdef class ReadableLog:
    cdef Edges edges
    cdef readonly uint64_t msgs
    cdef readonly uint64_t live_bytes
    cdef readonly SubjectIndex subjects
    cdef readonly SequenceSet dead          # sequences in first..last without a live message
    cdef BlockList blocks
    cdef readonly MsgBlock wanted           # the block that is needed after NEEDS_BLOCK
    cdef uint64_t resume_at                 # set by `next_match`: nothing before it matches

    cdef bint is_here(self, uint64_t sequence) noexcept nogil
    cdef bint next_live(self, uint64_t sequence, uint64_t* found) noexcept nogil
    cdef bint live_before(self, uint64_t sequence, uint64_t* found) noexcept nogil
    cdef uint64_t live_below(self, uint64_t sequence) noexcept nogil
    # Point `out` at a live message; valid until the log or a cache changes. Returns DONE or
    # NEEDS_BLOCK, or raises.
    cdef Outcome view(self, uint64_t sequence, RecordView* out) except? NEEDS_BLOCK

    # The bounds are inclusive; `found` is set if the outcome is DONE.
    cdef Outcome find_slot(
        self, uint32_t slot, uint64_t sequence, uint64_t upto, uint64_t* found
    ) except? NEEDS_BLOCK
    cdef Outcome find_slot_back(
        self, uint32_t slot, uint64_t sequence, uint64_t downto, uint64_t* found
    ) except? NEEDS_BLOCK
    cdef Outcome exact_first(self, int64_t slot, uint64_t* found) except? NEEDS_BLOCK
    cdef Outcome exact_last(self, int64_t slot, uint64_t* found) except? NEEDS_BLOCK

    # Find the first live message in sequence..upto that the filter matches. DONE: found; GONE:
    # there is none; PENDING: continue at `resume_at`; NEEDS_BLOCK: the same, once `wanted` is
    # loaded.
    cdef Outcome next_match(
        self, Filter wanted, uint64_t sequence, uint64_t upto, uint64_t* found
    ) except? NEEDS_BLOCK
    cdef Outcome next_of_subject(
        self, Filter wanted, uint64_t sequence, uint64_t upto, uint64_t* found
    ) except? NEEDS_BLOCK
    cdef Outcome look(
        self, Filter wanted, SlotMarks few, uint64_t sequence, uint64_t upto, int64_t looks,
        uint64_t* found,
    ) except? NEEDS_BLOCK
    cdef Outcome look_into(
        self, MsgBlock block, Filter wanted, SlotMarks few, uint64_t upto, int64_t* looks,
        uint64_t* found,
    ) except? NEEDS_BLOCK
    cdef int ask(self, MsgBlock block, Filter wanted, uint32_t place) except? -1
    cdef SlotMarks few_slots(self, Filter wanted)
    cdef SlotMarks narrow(self, Filter wanted)
    cdef bint bounds(self, SlotMarks few, uint64_t* sequence, uint64_t* upto) noexcept
