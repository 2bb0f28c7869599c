"""Declarations of result_set.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from natsd.core.routing cimport MatchResult


cdef class ResultSet:
    cdef PyObject** slots       # MatchResult, with a reference each; NULL: the slot is free
    cdef uint64_t capacity      # slots, a power of two; 0: none yet
    cdef uint64_t count         # results in the set

    cdef bint add(self, MatchResult result) except -1
    cdef int _grow(self) except -1
    cdef void _drop(self, PyObject** slots, uint64_t capacity) noexcept


cdef inline uint64_t slot_of(PyObject* result, uint64_t capacity) noexcept:
    """Return the slot at which the search for a result begins."""
    return ((<uint64_t> result >> 4) * <uint64_t> 0x9E3779B97F4A7C15 >> 32) & (capacity - 1)


cdef inline bint holds(ResultSet results, MatchResult result) noexcept:
    """Return whether a set has this very result."""
    cdef PyObject* wanted = <PyObject*> result
    cdef PyObject* there
    cdef uint64_t slot
    if results.capacity == 0:
        return False
    slot = slot_of(wanted, results.capacity)
    while True:
        there = results.slots[slot]
        if there == wanted:
            return True
        if there == NULL:
            return False
        slot = (slot + 1) & (results.capacity - 1)
