"""MessageLog for compiled callers: append and remove without Python objects."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.store.block.blocks cimport MsgBlock
from natsd.store.codec.records cimport RecordView
from natsd.store.log.subjects cimport SubjectIndex
from natsd.store.sequence_set cimport SequenceSet


cdef struct LogLimits:          # 0: no limit
    uint64_t max_msgs
    uint64_t max_bytes
    uint64_t max_msgs_per_subject
    uint64_t max_msg_size
    int64_t max_age_ns
    uint64_t uncounted_bytes    # bytes of each record that do not count
    bint discard_new
    bint discard_new_per_subject


cdef extern from *:
    """
    #define NATSD_SEQUENCE_LAST (((uint64_t)1 << 63) - 2)
    """
    uint64_t SEQUENCE_LAST "NATSD_SEQUENCE_LAST"


cdef enum Outcome:
    GONE = 0                    # there is no such message
    DONE = 1
    NEEDS_BLOCK = 2             # the block in `wanted` is not in memory
    PENDING = 3                 # not found yet: continue at `resume_at`


@cython.final
cdef class MessageLog:
    cdef Edges edges
    cdef readonly uint64_t msgs
    cdef readonly uint64_t live_bytes
    cdef readonly SubjectIndex subjects
    cdef readonly SequenceSet dead          # sequences in first..last without a live message
    cdef BlockList blocks
    cdef readonly MsgBlock wanted           # the block that is needed after NEEDS_BLOCK
    cdef uint64_t resume_at                 # set by `next_match`: nothing before it matches

    cdef readonly Expiries expiries
    cdef readonly object limits
    cdef LogLimits limit

    cdef object make_block

    cdef readonly bint is_undoable          # LogCommits commits the changes; else durable at once
    cdef UndoLog undo_log                   # None unless `is_undoable`
    cdef list replaced                      # states put away by `clear`, oldest first: see Replaced
    cdef readonly SequenceSet tombstones    # removals between first and last, for the next commit
    cdef readonly SequenceSet erasures      # removals whose bytes are to be overwritten
    cdef readonly set sparse                # sealed blocks that became less than half full
    cdef LogObserver observer               # is told of removals; or None
    cdef object listener                    # called without arguments after a change, or None
    cdef bint is_told                       # `listener` was called since the last commit was taken
    cdef public bint needs_care             # a log without commits has dead bytes to free
    cdef object refusal                     # error raised for every change, or None
    cdef readonly bint is_behind            # a limit is not enforced yet: call `settle_limits`
    cdef dict over_limit                    # slot -> birth of each subject over its limit
    cdef public bint is_overcrowded         # further subjects are over it (EnforcePerSubjectLimit)
    cdef uint64_t age_from                  # messages below this sequence never expire by age
    cdef bint is_together                   # appended messages belong to one batch
    # Changes were made that no command contains yet: no commit to disk takes anything.
    cdef public bint is_staged
    cdef public uint64_t applied_index      # index of the last command that was applied; 0: none
    # Index of the last command that the replicas have committed; one replica: all are.
    cdef public uint64_t committed_index
    cdef readonly uint64_t durable_index    # index of the last one that is in the last commit

    cdef int begin_undo_log(self) except -1
    cdef bint has_undo(self) noexcept       # whether a rollback would change anything
    cdef int take_limits(self, limits) except -1

    # By sequence
    cdef bint is_here(self, uint64_t sequence) noexcept nogil
    cdef bint next_live(self, uint64_t sequence, uint64_t* found) noexcept nogil
    cdef bint live_before(self, uint64_t sequence, uint64_t* found) noexcept nogil
    cdef uint64_t live_below(self, uint64_t sequence) noexcept nogil
    # Point `out` at a live message; valid until the log or a cache changes. Returns DONE or
    # NEEDS_BLOCK, or raises.
    cdef Outcome view(self, uint64_t sequence, RecordView* out) except? NEEDS_BLOCK

    # Blocks
    cdef MsgBlock begin_block(self, uint64_t sequence)
    cdef MsgBlock writable_block(self, uint64_t sequence)
    cdef MsgBlock block_for(self, uint64_t sequence, uint64_t size)

    # Appending. `sequence` 0: the next one. `is_checked`: "discard new" limits may refuse the
    # message.
    cdef int64_t append_object(
        self, subject, bytes headers, bytes data, int64_t time_ns, uint64_t sequence,
        int64_t expires_ns, bint is_checked,
    ) except -1
    cdef int64_t append_raw(
        self, const char* subject, uint32_t subject_len, const char* headers, uint32_t headers_len,
        const char* data, uint32_t data_len, int64_t time_ns, uint64_t sequence,
        int64_t expires_ns, bint is_checked,
    ) except -1
    # Messages appended between these two calls are a batch: after a crash all of them are found, or
    # none. `size` is the bytes of its `count` records. Messages that `check_append` accepts fit
    # then.
    cdef int begin_together(self, uint64_t count, uint64_t size) except -1
    cdef int end_together(self) except -1
    cdef int end_at(self, uint64_t sequence, int64_t time_ns) except -1
    cdef int tell(self) except -1
    cdef uint64_t skip_raw(self, uint64_t count) except 0

    # Removing. If the outcome is NEEDS_BLOCK, nothing was done.
    cdef Outcome remove(self, uint64_t sequence, bint erase) except? NEEDS_BLOCK
    cdef Outcome remove_lost(self, uint64_t sequence, MsgBlock block) except? NEEDS_BLOCK
    cdef int let_go(self, MsgBlock block, uint64_t sequence, uint32_t slot) except -1
    cdef int move_first(self) except -1
    cdef int retire_blocks(self) except -1
    cdef uint64_t counted_bytes(self) noexcept nogil       # bytes that count for `max_bytes`
    cdef bint is_over(self) noexcept nogil
    cdef int note_expiry(self, int64_t at_ns, uint64_t sequence) except -1


cdef class Replaced:
    cdef Edges edges
    cdef uint64_t msgs
    cdef uint64_t live_bytes
    cdef SubjectIndex subjects
    cdef SequenceSet dead
    cdef BlockList blocks
    cdef UndoLog undo_log
