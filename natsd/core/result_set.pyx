"""A set of match results, compared by identity: a membership test is a few machine instructions.

    slots   │ · │ r │ r │ · │ · │ r │ · │ … │     a result is at its slot, or behind results that
              0   1   2   3   4   5   6           were there before

- At most a quarter of the slots are used, so that most results are at their slot. A set that is
  full takes twice the slots, without the results that are not live any more; at RESULTS_MAX it
  begins again, empty.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

cdef enum:
    CAPACITY_MIN = 32
    RESULTS_MAX = 1024          # as many as a SubList keeps


@cython.final
cdef class ResultSet:
    """Match results that a session remembers."""

    def __dealloc__(self):
        self._drop(self.slots, self.capacity)

    cdef bint add(self, MatchResult result) except -1:
        """Add a result that is not in the set."""
        cdef uint64_t slot
        if self.count * 4 >= self.capacity:
            self._grow()
        slot = slot_of(<PyObject*> result, self.capacity)
        while self.slots[slot] != NULL:
            slot = (slot + 1) & (self.capacity - 1)
        Py_INCREF(result)
        self.slots[slot] = <PyObject*> result
        self.count += 1
        return True

    cdef int _grow(self) except -1:
        """Make room for at least one more result."""
        cdef PyObject** before = self.slots
        cdef uint64_t capacity_before = self.capacity
        cdef uint64_t at
        cdef MatchResult result
        if self.count < RESULTS_MAX:
            self.capacity = max(<uint64_t> CAPACITY_MIN, capacity_before * 2)
        self.slots = <PyObject**> calloc(self.capacity, sizeof(PyObject*))
        if self.slots == NULL:
            self.slots, self.capacity = before, capacity_before
            raise MemoryError
        self.count = 0
        if self.capacity != capacity_before:
            for at in range(capacity_before):
                if before[at] != NULL and (<MatchResult> before[at]).live:
                    result = <MatchResult> before[at]
                    self.add(result)
        self._drop(before, capacity_before)
        return 0

    cdef void _drop(self, PyObject** slots, uint64_t capacity) noexcept:
        """Release the references in an array of slots, and the array."""
        cdef uint64_t at
        for at in range(capacity):
            if slots[at] != NULL:
                Py_DECREF(<MatchResult> slots[at])
        free(slots)
