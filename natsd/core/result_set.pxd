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


cdef inline bint holds(PyObject* results, PyObject* wanted) noexcept:
    """Return whether a ResultSet has this very MatchResult; both are borrowed.

    A call with references would count them up and down, a fifth of its instructions.
    """
    cdef PyObject** slots = (<ResultSet> results).slots
    cdef uint64_t capacity = (<ResultSet> results).capacity
    cdef uint64_t slot
    if capacity == 0:
        return False
    slot = slot_of(wanted, capacity)
    while slots[slot] != wanted:
        if slots[slot] == NULL:
            return False
        slot = (slot + 1) & (capacity - 1)
    return True
