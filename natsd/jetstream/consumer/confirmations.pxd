"""The answers to acknowledgements, which wait until these are durable; see confirmations.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.core.network cimport AccountPublisher
from natsd.store.consumer.tracking cimport ConsumerTracker


cdef class Confirmations:
    cdef object store
    cdef ConsumerTracker tracker
    cdef AccountPublisher publisher
    cdef object on_durable      # called when there are answers to `send`
    cdef bint is_file           # the state is on disk; otherwise changes are durable at once
    cdef uint64_t durable       # number of durable changes of the tracker
    cdef uint64_t commit_asked  # number of changes that the last commit covers
    cdef int64_t due_ns         # when changes without an answer are committed; 0: none

    cdef char* bytes            # records: number of changes u64, length u32, reply
    cdef Py_ssize_t head
    cdef Py_ssize_t tail
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t count
    cdef uint64_t last_count    # number of changes that the newest answer waits for
    cdef uint64_t wanted        # changes that another waiter needs; 0: none

    # Answer the last acknowledgement later. False: too many answers wait, there will be none.
    cdef bint add(self, const char* reply, Py_ssize_t length) except -1
    # Send up to `most` durable answers in order, and commit what the others wait for. True: more
    # can be sent.
    cdef bint serve(self, Py_ssize_t most) except? -1
    # Have that many changes committed now; `on_durable` is called when they are durable. True: they
    # are.
    cdef bint want(self, uint64_t change_count) except -1
    # Return the number of durable changes.
    cdef uint64_t durable_changes(self) noexcept
    # Commit the changes that are due, and set `due_ns`.
    cdef int keep(self, int64_t now_ns) except -1
    cdef int drop(self) except -1

    cdef int send(self, Py_ssize_t most) except -1
    cdef uint64_t next_count(self) noexcept nogil
    cdef int commit(self) except -1
    cdef int make_room(self, Py_ssize_t need) except -1
