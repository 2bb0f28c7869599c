"""The redelivery of messages that are not acknowledged; see redelivery.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.store.consumer.tracking cimport ConsumerTracker


cdef struct Hint:               # examine that message at that time
    int64_t due_ns
    uint64_t sequence

cdef struct Due:                # an entry of the queue; valid if `queued` has its stamp
    uint64_t sequence
    uint64_t stamp


cdef class Redelivery:
    cdef ConsumerTracker tracker
    cdef object exceeded                # callable(sequence, deliveries)
    cdef int64_t ack_wait_ns
    cdef int64_t* backoff_ns
    cdef Py_ssize_t backoff_count

    cdef uint64_t front
    cdef int64_t latest_ns              # the latest first delivery without a hint
    cdef Hint* hints                    # a heap
    cdef Py_ssize_t hint_count
    cdef Py_ssize_t hint_capacity
    cdef Py_ssize_t sweep_at
    cdef dict hinted                    # stream sequence -> due_ns of its only valid hint

    cdef Due* queue                     # from head to tail
    cdef Py_ssize_t queue_head
    cdef Py_ssize_t queue_tail
    cdef Py_ssize_t queue_capacity
    cdef dict queued                    # stream sequence -> stamp of its valid entry
    cdef uint64_t stamps

    # The objects to tell when a message is not pending any more; usually None.
    cdef KeyedPendingCursor keyed
    cdef object letters                 # DeadLetters
    cdef set parked                     # sequences of dead letters: pending, never delivered again
    # deque of (change count, sequence, text) not given to `letters`
    cdef object dead_letters
    cdef bint is_followed               # `keyed` or `letters` is set

    cdef int configure(self, int64_t ack_wait_ns, tuple backoff_ns) except -1
    cdef int restore(self) except -1
    # Note that a pending message was delivered for the `count`-th time, at `now_ns`.
    cdef int delivered(self, uint64_t sequence, uint64_t count, int64_t now_ns) except -1
    # Note that the time of a pending message was changed.
    cdef int moved(self, uint64_t sequence) except -1
    # Note that a message is not pending any more.
    cdef int forget(self, uint64_t sequence) except -1
    cdef int forget_through(self, uint64_t sequence) except -1
    # Queue a message now, unless it is queued.
    cdef int enqueue(self, uint64_t sequence) except -1
    # Queue all pending messages: another client gets them.
    cdef int enqueue_all(self) except -1
    cdef int dequeue(self, uint64_t sequence) except -1
    # Return the next message to deliver again, or 0; it stays the next until `dequeue`.
    cdef uint64_t next_queued(self) except? 0
    # Queue some of the messages that are due. True: there are more.
    cdef bint collect(self, int64_t now_ns, Py_ssize_t budget) except -1
    # Return when to call `collect` next, which is never later than a message is due; 0: none waits.
    cdef int64_t next_due_ns(self) except -1
    cdef int64_t wait_ns(self, uint64_t sequence) except -1
    # End the deliveries of a message that was delivered as often as allowed, and report it. It is
    # not pending any more, or a dead letter.
    cdef int exceed(self, uint64_t sequence) except -1
    # The same without a report or a dead letter.
    cdef int drop(self, uint64_t sequence) except -1
    cdef int follow(self, KeyedPendingCursor keyed, letters) except -1
    # Make a pending message a dead letter, which is not delivered again. `text`: a client's reason.
    cdef int park(self, uint64_t sequence, bytes text) except -1
    cdef bint is_parked(self, uint64_t sequence) except -1
    # Give `letters` the messages that were parked by the first `durable` changes.
    cdef int hand_over_dead_letters(self, uint64_t durable) except -1
    # Return the change that must be durable before all dead letters can be given out; 0: none
    # waits.
    cdef uint64_t dead_letters_since(self) except? 0

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
