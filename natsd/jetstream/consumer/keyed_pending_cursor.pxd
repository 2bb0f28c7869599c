"""A cursor that gives out one message of each key at a time; see keyed_pending_cursor.pyx."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from natsd.store.codec.records cimport RecordView
from natsd.store.consumer.tracking cimport ConsumerTracker
from natsd.store.log.message_log cimport NEEDS_BLOCK, Outcome
from natsd.store.sequence_set cimport SequenceSet


cdef struct Waiting:            # a waiting message; free nodes form a list too
    uint64_t sequence
    int32_t next                # the next message of its key; -1: none


cdef class Key:
    cdef bytes name
    cdef uint64_t holder        # the pending message of the key; 0: none
    cdef bint is_settling       # its last message was acknowledged, but not durably yet
    cdef bint is_ready          # the key is in `ready`
    cdef int32_t head           # first and last waiting message; -1: none
    cdef int32_t tail

    cdef bint is_free(self) noexcept


cdef class KeyedPendingCursor(PendingCursor):
    cdef ConsumerTracker tracker
    cdef int token
    cdef Py_ssize_t look_ahead_max
    cdef dict keys              # name -> Key, for keys that are not free
    cdef dict holders           # sequence -> Key
    cdef SequenceSet waiting    # sequences that were read and not delivered
    cdef object ready           # deque of Keys whose first message may be delivered
    cdef object settling        # deque of (change count, Key)
    cdef Key chosen             # the key of the message that `find` gave last
    cdef Waiting* nodes
    cdef Py_ssize_t node_capacity
    cdef Py_ssize_t node_count  # nodes in use; some are of removed messages
    cdef int32_t free_node
    cdef bint must_restore      # the keys of pending and held messages must be read
    cdef bint has_holders       # those of pending messages were read
    cdef uint64_t restore_at
    cdef uint64_t durable       # known number of durable changes of the tracker
    cdef uint64_t barrier       # changes that must be durable before any delivery; 0: none
    cdef readonly uint64_t awaited      # changes that something waits for; 0: none

    # Set the tracker, the token that is the key, and how many messages may wait; to be called
    # first.
    cdef int set_key(
        self, ConsumerTracker tracker, int token, Py_ssize_t look_ahead_max
    ) except -1
    # Note that a message is not pending any more, which is the tracker's last change.
    cdef int settled(self, uint64_t sequence) except -1
    # Free the keys that waited for the first `durable` changes to be durable.
    cdef int free_keys(self, uint64_t durable) except -1
    # Hold the waiting messages that the one to be delivered, which `find` gave last, overtakes.
    cdef int hold_below(self, uint64_t sequence) except -1

    cdef Outcome read_on(self, uint64_t visible, uint64_t* found) except? NEEDS_BLOCK
    cdef Key key_of(self, RecordView* view)
    cdef Key first_ready(self)
    cdef int wait(self, Key key, uint64_t sequence) except -1
    cdef int grow_nodes(self) except -1
    cdef int drop_first(self, Key key) except -1
    cdef int drop_gone(self, Key key) except -1
    cdef int forget_if_free(self, Key key) except -1
    cdef bint is_full(self) except -1
    cdef int hold_all(self) except -1
    cdef bint restore_some(self, uint64_t budget) except -1
    cdef int restore_holder(self, uint64_t sequence) except -1
    cdef int restore_waiting(self, uint64_t sequence) except -1
