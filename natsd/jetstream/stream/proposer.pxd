"""The proposer of one stream's commands, for compiled callers."""

from libc.stdint cimport uint64_t

from natsd.store.consumer.tracking cimport EntryBuffer, EntryListener
from natsd.store.log.message_log cimport MessageLog
from natsd.store.sequence_set cimport SequenceSet


cdef class TrackerRun(EntryListener):
    """Changes of one consumer's tracker that are no part of a command yet."""
    cdef Proposer proposer
    cdef str name
    cdef EntryBuffer entries    # made before the removals that are no part of a command
    cdef EntryBuffer caused     # made since, and perhaps because of them
    cdef bint is_listed         # in `Proposer.runs`


cdef class Proposer:
    cdef object committer       # CommandCommitter
    cdef MessageLog log
    cdef object on_committed            # callback(command)
    cdef readonly uint64_t proposed     # index of the last proposed command
    cdef readonly uint64_t committed    # index of the last committed command
    cdef object staged          # deque: uncommitted commands, each with the stream's last sequence
    cdef object unwritten       # deque of (index, command): committed, maybe not in the log's files
    cdef SequenceSet removed    # messages removed since the last command
    cdef list runs              # TrackerRuns with changes
    cdef Actor summoned         # submitted at a first change, to propose the rest; or None
    cdef Scheduler scheduler
    cdef list batch             # commands of the atomic batch that is being appended; or None

    cdef int note_removed(self, uint64_t sequence) except -1
    cdef int look_for_unproposed(self) except -1
    cdef tuple take_removed(self)
    # Begin a publish: what was removed before is no part of it.
    cdef int begin_publish(self) except -1
    # Propose the publish, whose command contains `take_removed`.
    cdef int end_publish(self, command) except -1
    cdef int propose_runs(self) except -1
    cdef int settle_caused(self) except -1
    cdef int put(self, command) except -1
    cdef int begin_batch(self) except -1
    cdef int end_batch(self) except -1
    cdef int hand_on(self, command) except -1
    # Return the stream's last sequence at the command with that index; 0: it is committed.
    cdef uint64_t sequence_at(self, uint64_t index) except? 0
    # Note that all commands up to `index` are committed. Returns the last stream sequence that is
    # committed, or `before` if that did not change.
    cdef uint64_t commit(self, uint64_t index, uint64_t before) except? 0
