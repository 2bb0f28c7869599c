"""The state of one consumer and the log of its changes; see consumer_tracker.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.store.sequence_set cimport SequenceSet


cdef enum AckResult:
    ACK_TAKEN = 0
    ACK_IGNORED = 1             # below the floor already
    ACK_UNKNOWN = 2             # no message is pending under that stream sequence

cdef struct PendingMessage:
    uint64_t stream
    uint64_t consumer           # of the first delivery; 0: no longer pending
    int64_t time_ns             # of the last delivery


cdef class ConsumerTracker:
    cdef readonly int ack_policy
    cdef public uint64_t max_deliver            # 0: no limit
    cdef readonly uint64_t delivered_consumer
    cdef readonly uint64_t delivered_stream
    cdef readonly uint64_t floor_consumer
    cdef readonly uint64_t floor_stream
    cdef readonly dict redelivered
    cdef readonly SequenceSet held              # read, but to be delivered later; None: never any
    cdef readonly set terminated                # pending, but not to be delivered again; None: none
    cdef readonly EntryBuffer changes
    cdef readonly uint64_t change_count         # all changes, those before `changes` included
    cdef readonly bint logging
    cdef object on_change
    cdef public EntryListener listener          # is told of each entry; or None
    cdef PendingMessage* items                  # sorted by stream sequence; head .. tail - 1 in use
    cdef Py_ssize_t head
    cdef Py_ssize_t tail
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t pending_count

    cpdef update_delivered(
        self, uint64_t consumer, uint64_t stream, uint64_t count, int64_t time_ns
    )
    cpdef update_acks(self, uint64_t consumer, uint64_t stream)
    cpdef hold(self, uint64_t first, uint64_t last)
    cpdef let_go(self, uint64_t first, uint64_t last)
    cpdef terminate(self, uint64_t stream)
    cdef AckResult acknowledge(self, uint64_t consumer, uint64_t stream) except *
    cdef int deliver(
        self, uint64_t consumer, uint64_t stream, uint64_t count, int64_t time_ns, bint drop
    ) except -1

    cdef AckResult acknowledge_one(self, Py_ssize_t index) noexcept
    cdef void drop_pending(self, Py_ssize_t index) noexcept
    cdef void raise_floor(self) noexcept nogil
    cdef int take_held(self, uint64_t first, uint64_t last) except -1
    cdef int redo(self, Entry* entry) except -1
    cdef bytes encode_rest(self)
    cdef int decode_rest(self, bytes data) except -1
    cdef int insert(self, uint64_t stream, uint64_t consumer, int64_t time_ns) except -1
    cdef int acknowledge_up_to(self, uint64_t consumer, uint64_t stream) except -1
    cdef Py_ssize_t find(self, uint64_t stream) noexcept nogil
    # Return the index of the first item at or behind that sequence, pending or not; `tail`: none.
    cdef Py_ssize_t lower_bound(self, uint64_t stream) noexcept nogil
    cdef int append(self, uint64_t stream, uint64_t consumer, int64_t time_ns) except -1
    cdef void remove(self, Py_ssize_t index) noexcept nogil
    cdef void compact(self) noexcept nogil
    cdef int reserve(self, Py_ssize_t count) except -1
    cdef int log(
        self, int kind, int flags, uint64_t count, uint64_t a, uint64_t b, int64_t c
    ) except -1
    cdef int count_redelivery(self, uint64_t stream, uint64_t count) except -1
