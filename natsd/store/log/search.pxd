"""Long reads of a log in slices; the declarations of search.pyx."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.store.block.blocks cimport MsgBlock
from natsd.store.log.subjects cimport Filter, Matches, SlotMarks, Subject, SubjectIndex


cdef class Operation:
    cdef MessageLog log
    cdef SubjectIndex subjects          # the index when the operation began
    cdef Filter filter
    cdef Matches matches                # None: all subjects are done
    cdef readonly object result

    # Do a part of the work; return whether all of it is done. Raises ColdBlock if a block must be
    # loaded first; the operation can then go on where it was.
    cpdef bint step(self, uint64_t budget) except? -1
    cdef bint work(self, uint64_t budget) except? -1
    cdef int begin(self) except -1
    cdef int need(self, Outcome outcome) except -1


cdef class BlockWalk:
    cdef MessageLog log
    cdef SlotMarks marks        # the slots searched for; None: any
    cdef uint64_t at            # next sequence to look at
    cdef uint64_t upto
    cdef bint is_back
    cdef bint is_done

    cdef int set(
        self, MessageLog log, SlotMarks marks, uint64_t first, uint64_t last, bint back=*
    ) except -1
    cdef MsgBlock block(self)
    cdef uint64_t next_base(self) noexcept
    cdef int passed(self, MsgBlock block, uint32_t place) noexcept
    cdef int passed_back(self, MsgBlock block, uint32_t place) noexcept


@cython.final    # called for each subject, so the calls should be direct
cdef class NumPending(Operation):
    cdef BlockWalk scan
    cdef SlotMarks partial      # subjects with only a part of their messages in the range
    cdef SlotMarks counted      # subjects that were looked at
    cdef uint64_t first, through, found, partial_count, low, high
    cdef bint last_only, has_late, is_scanning, is_below

    cdef int removed(self, uint64_t sequence, uint32_t slot) except -1

    cdef bint finish(self)
    cdef bint count_subjects(self, uint64_t subjects_max) except? -1
    cdef int count_subject(self, int64_t slot) except -1
    cdef int count_last(self, int64_t slot, Subject* record) except -1
    cdef int note_partial(self, int64_t slot, Subject* record) except -1
    cdef int begin_scan(self) except -1
    cdef bint count_messages(self, uint64_t budget) except? -1
    cdef uint64_t count_lasts(self, MsgBlock block, uint64_t budget) except? 0
