"""Answers to acknowledgements, until they are durable: see confirmations.pyx."""

from libc.stdint cimport uint32_t, uint64_t

from natsd.core.outlet cimport Outlet


cdef class Confirmations:
    cdef char* bytes            # records: change count u64, length u32, reply
    cdef Py_ssize_t head
    cdef Py_ssize_t tail
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t count
    cdef uint64_t last_count    # what the newest waits for

    # False: too many wait already, this one will not be answered.
    cdef bint add(self, uint64_t change_count, const char* reply, Py_ssize_t length) except -1
    # Answer, in order, those whose changes are among the first `durable`; at most `most`.
    cdef int send(self, Outlet outlet, uint64_t durable, Py_ssize_t most) except -1
    # Of the last one that waits; 0: none does.
    cdef uint64_t awaited(self) noexcept nogil
    cdef int drop(self) except -1
    cdef int make_room(self, Py_ssize_t need) except -1
