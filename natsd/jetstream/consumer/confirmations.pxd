"""Answers to acknowledgements, until they are durable: see confirmations.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.core.outlet cimport Outlet
from natsd.store.consumer_tracker cimport ConsumerTracker


cdef class Confirmations:
    cdef object store
    cdef ConsumerTracker tracker
    cdef Outlet outlet
    cdef object on_durable      # called when there is something to `send`
    cdef bint is_file           # the state is on disk; else what is done is durable
    cdef uint64_t durable       # changes of the tracker
    cdef uint64_t commit_asked  # those that the last commit was asked for
    cdef int64_t due_ns         # when to commit what nobody waits for; 0: nothing has changed

    cdef char* bytes            # records: change count u64, length u32, reply
    cdef Py_ssize_t head
    cdef Py_ssize_t tail
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t count
    cdef uint64_t last_count    # what the newest waits for
    cdef uint64_t wanted        # changes that somebody else waits for; 0: nobody does

    # The last acknowledgement is to be answered. False: too many wait, this one will not be.
    cdef bint add(self, const char* reply, Py_ssize_t length) except -1
    # Answer, in order, those that are durable, at most `most`; have committed what is not. True:
    # there is more to answer.
    cdef bint serve(self, Py_ssize_t most) except? -1
    # Have so many changes committed now; `on_durable` is called when they are. True: they are.
    cdef bint want(self, uint64_t change_count) except -1
    # How many changes are durable.
    cdef uint64_t durable_changes(self) noexcept
    # Commit what is due. Sets `due_ns`.
    cdef int keep(self, int64_t now_ns) except -1
    cdef int drop(self) except -1

    cdef int send(self, Py_ssize_t most) except -1
    cdef uint64_t next_count(self) noexcept nogil
    cdef int commit(self) except -1
    cdef int make_room(self, Py_ssize_t need) except -1
