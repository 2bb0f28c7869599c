"""A backlog that gives out one message of each key at a time: see keyed_backlog.pyx."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from natsd.jetstream.consumer.backlog cimport Backlog
from natsd.store.consumer_tracker cimport ConsumerTracker
from natsd.store.log cimport NEEDS_BLOCK, Outcome
from natsd.store.record cimport RecordView
from natsd.store.sequence_set cimport SequenceSet


cdef struct Waiting:            # a message that waits; free ones make a list too
    uint64_t sequence
    int32_t next                # the next of its key; -1: none


cdef class Key:
    cdef bytes name
    cdef uint64_t holder        # delivered, not acknowledged; 0: none
    cdef bint is_settling       # it was acknowledged, and that is not durable yet
    cdef bint is_ready          # it stands in `ready`
    cdef int32_t head           # of those that wait, in order; -1: none
    cdef int32_t tail

    cdef bint is_free(self) noexcept


cdef class KeyedBacklog(Backlog):
    cdef ConsumerTracker tracker
    cdef int token
    cdef Py_ssize_t look_ahead_max
    cdef dict keys              # name -> Key, of those that are not free
    cdef dict holders           # sequence -> Key
    cdef SequenceSet waiting    # read and not delivered
    cdef object ready           # deque of Keys whose first may go
    cdef object settling        # deque of (change count, Key)
    cdef Key chosen             # that of what `find` gave last
    cdef Waiting* nodes
    cdef Py_ssize_t node_capacity
    cdef Py_ssize_t node_count  # in use; some may be of messages that are gone
    cdef int32_t free_node
    cdef bint must_restore      # the keys of what is pending or held are to be read
    cdef bint has_holders       # those of what is pending are
    cdef uint64_t restore_at
    cdef uint64_t durable       # changes of the tracker, as far as was told
    cdef uint64_t barrier       # changes to be durable before anything goes out; 0: none
    cdef readonly uint64_t awaited      # changes that something waits for; 0: nothing does

    # Before anything else: whose state it is, which token is the key, how many may wait.
    cdef int set_key(
        self, ConsumerTracker tracker, int token, Py_ssize_t look_ahead_max
    ) except -1
    # A pending message is pending no more, which is the tracker's last change.
    cdef int settled(self, uint64_t sequence) except -1
    # So many changes are durable: keys that waited for that are free.
    cdef int free_keys(self, uint64_t durable) except -1
    # The message that `find` gave last is about to be delivered: what it overtakes is held.
    cdef int hold_below(self, uint64_t sequence) except -1

    cdef Outcome read_on(self, uint64_t visible, uint64_t* found) except? NEEDS_BLOCK
    cdef Outcome look(self, uint64_t sequence, RecordView* view) except? NEEDS_BLOCK
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
