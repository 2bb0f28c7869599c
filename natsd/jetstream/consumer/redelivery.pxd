"""When what is not acknowledged is delivered again: see redelivery.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.jetstream.consumer.keyed_backlog cimport KeyedBacklog
from natsd.store.consumer_tracker cimport ConsumerTracker


cdef struct Hint:               # look at that message at that time
    int64_t due_ns
    uint64_t sequence

cdef struct Due:                # a place in the queue; valid if `queued` has the same stamp
    uint64_t sequence
    uint64_t stamp


cdef class Redelivery:
    cdef ConsumerTracker tracker
    cdef object exceeded                # callable(sequence, deliveries)
    cdef int64_t ack_wait_ns
    cdef int64_t* backoff_ns
    cdef Py_ssize_t backoff_count

    cdef uint64_t front
    cdef int64_t latest_ns              # of first deliveries that have no hint
    cdef Hint* hints                    # a heap
    cdef Py_ssize_t hint_count
    cdef Py_ssize_t hint_capacity
    cdef Py_ssize_t sweep_at
    cdef dict hinted                    # stream sequence -> due_ns of its one valid hint

    cdef Due* queue                     # head .. tail
    cdef Py_ssize_t queue_head
    cdef Py_ssize_t queue_tail
    cdef Py_ssize_t queue_capacity
    cdef dict queued                    # stream sequence -> stamp
    cdef uint64_t stamps

    # Who hears of what is pending no more; None: as a rule.
    cdef KeyedBacklog keyed
    cdef object letters                 # DeadLetters
    cdef set parked                     # pending, never delivered again: `letters` has them
    cdef bint is_followed               # there is one of them

    cdef int configure(self, int64_t ack_wait_ns, tuple backoff_ns) except -1
    cdef int restore(self) except -1
    # A pending message was delivered for the `count`-th time, at `now_ns`.
    cdef int delivered(self, uint64_t sequence, uint64_t count, int64_t now_ns) except -1
    # The time of a pending message was moved.
    cdef int moved(self, uint64_t sequence) except -1
    # It is pending no more.
    cdef int forget(self, uint64_t sequence) except -1
    cdef int forget_through(self, uint64_t sequence) except -1
    # Queue it now, unless it is queued.
    cdef int enqueue(self, uint64_t sequence) except -1
    # Queue all that is pending: it goes to somebody else.
    cdef int enqueue_all(self) except -1
    cdef int dequeue(self, uint64_t sequence) except -1
    # The next to be delivered again, or 0; it stays the next until `dequeue`.
    cdef uint64_t next_queued(self) except? 0
    # Queue what is due, some of it. True: there is more.
    cdef bint collect(self, int64_t now_ns, Py_ssize_t budget) except -1
    # When `collect` should next be called, never later than something is due; 0: nothing waits.
    cdef int64_t next_due_ns(self) except -1
    cdef int64_t wait_ns(self, uint64_t sequence) except -1
    # It was delivered as often as it may be: pending no more, or a dead letter, and said so.
    cdef int exceed(self, uint64_t sequence) except -1
    # The same, with nobody told.
    cdef int drop(self, uint64_t sequence) except -1
    cdef int follow(self, KeyedBacklog keyed, letters) except -1
    # Pending, it is delivered no more: a dead letter. `text`: why a client terminated it.
    cdef int park(self, uint64_t sequence, bytes text) except -1
    cdef bint is_parked(self, uint64_t sequence) except -1

    cdef Py_ssize_t first_without_hint(self) except -2
    cdef int expire(self, Py_ssize_t index) except -1
    cdef bint is_spent(self, uint64_t sequence) except -1
    cdef int hint(self, uint64_t sequence, int64_t due_ns) except -1
    cdef bint is_stale(self, Py_ssize_t at) except -1
    cdef int sweep_hints(self) except -1
    cdef void remove_hint(self, Py_ssize_t at) noexcept nogil
    cdef void sift_up(self, Py_ssize_t at) noexcept nogil
    cdef void sift_down(self, Py_ssize_t at) noexcept nogil
    cdef bint is_valid(self, Due* due) except -1
    cdef int make_queue_room(self) except -1
