"""Journal: the removals since the durable point, which a failed commit takes back.

Appends need no entry: what was appended is what lies behind the durable last sequence. A removal is
16 bytes until it is durable; the log's store commits before it removes more than it wants to keep.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

cdef enum:
    CAPACITY_MIN = 64


cdef class Journal:
    def __cinit__(self):
        self.begun = []
        self.retired = []
        self.expired = []

    def __dealloc__(self):
        free(self.removals)

    cdef int add(self, uint64_t sequence, uint32_t slot, uint32_t size) except -1:
        cdef size_t capacity
        cdef Removal* removals
        if self.removal_count == self.capacity:
            capacity = self.capacity * 2 if self.capacity else CAPACITY_MIN
            removals = <Removal*> realloc(self.removals, capacity * sizeof(Removal))
            if removals == NULL:
                raise MemoryError()
            self.removals = removals
            self.capacity = capacity
        self.removals[self.removal_count] = Removal(sequence=sequence, slot=slot, size=size)
        self.removal_count += 1
        return 0

    cdef void drop(self, size_t removals) noexcept:
        """The oldest ones are durable."""
        assert removals <= self.removal_count
        self.removal_count -= removals
        memmove(self.removals, &self.removals[removals], self.removal_count * sizeof(Removal))
        if self.removal_count == 0 and self.capacity > CAPACITY_MIN:
            free(self.removals)
            self.removals = NULL
            self.capacity = 0
