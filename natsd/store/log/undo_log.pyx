"""UndoLog: the removals since the durable point, which are undone if a commit fails.

Appends need no entry: they are the messages behind the durable last sequence. A removal takes 16
bytes until it is durable; the log's store commits before it has removed more than it wants to
remember.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove, memset

from natsd.store.block.array cimport array_add

cdef enum:
    UNDO_CAPACITY_MIN = 64


cdef class UndoLog:
    """The undo log since the durable point; oldest entries first."""

    def __cinit__(self):
        self.begun = []
        self.retired = []

    def __dealloc__(self):
        free(self.removals)
        free(self.expired.items)

    cdef int add(self, uint64_t sequence, uint32_t slot, uint32_t size) except -1:
        cdef size_t capacity
        cdef Removal* removals
        if self.removal_count == self.capacity:
            capacity = self.capacity * 2 if self.capacity else UNDO_CAPACITY_MIN
            removals = <Removal*> realloc(self.removals, capacity * sizeof(Removal))
            if removals == NULL:
                raise MemoryError()
            self.removals = removals
            self.capacity = capacity
        self.removals[self.removal_count] = Removal(sequence=sequence, slot=slot, size=size)
        self.removal_count += 1
        return 0

    cdef void drop(self, size_t removals) noexcept:
        """Drop the oldest removals, which are durable."""
        assert removals <= self.removal_count
        self.removal_count -= removals
        memmove(self.removals, &self.removals[removals], self.removal_count * sizeof(Removal))
        if self.removal_count == 0 and self.capacity > UNDO_CAPACITY_MIN:
            free(self.removals)
            self.removals = NULL
            self.capacity = 0

    cdef int note_expired(self, Expiry item) except -1:
        cdef Expiry* place = <Expiry*> array_add(&self.expired, sizeof(Expiry))
        if place == NULL:
            raise MemoryError()
        place[0] = item
        return 0

    cdef int take_expired(self, UndoLog other) except -1:
        cdef uint32_t at
        for at in range(other.expired.count):
            self.note_expired((<Expiry*> other.expired.items)[at])
        return 0

    cdef void drop_expired(self, uint32_t count) noexcept:
        """Drop the oldest expiry entries, which are durable."""
        cdef Expiry* items = <Expiry*> self.expired.items
        assert count <= self.expired.count
        self.expired.count -= count
        if self.expired.count:
            memmove(items, &items[count], self.expired.count * sizeof(Expiry))
        elif self.expired.capacity > UNDO_CAPACITY_MIN:
            free(items)
            memset(&self.expired, 0, sizeof(self.expired))
