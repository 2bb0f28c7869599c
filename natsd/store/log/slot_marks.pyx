"""SlotMarks: a bit for each slot of an index, and a list of the first few marked slots."""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset


cdef class SlotMarks:
    """A set of slots, as bits, with a list of the first FEW_SLOTS that were marked."""

    def __dealloc__(self):
        free(self.words)

    cdef int mark(self, uint32_t slot) except -1:
        cdef uint32_t capacity
        cdef uint64_t* words
        if slot >= self.capacity:
            capacity = max(slot + 1, self.capacity * 2, 1024) + 63 & ~<uint32_t> 63
            words = <uint64_t*> realloc(self.words, capacity >> 3)
            if words == NULL:
                raise MemoryError()
            memset(&words[self.capacity >> 6], 0, (capacity - self.capacity) >> 3)
            self.words = words
            self.capacity = capacity
        if not self.has(slot):
            self.words[slot >> 6] |= <uint64_t> 1 << (slot & 63)
            self.count += 1
            if self.marked < FEW_SLOTS:
                self.few[self.marked] = slot
            self.marked += 1
        return 0

    cdef bint has(self, uint32_t slot) noexcept nogil:
        return slot < self.capacity and (self.words[slot >> 6] >> (slot & 63)) & 1

    cdef void unmark(self, uint32_t slot) noexcept:
        self.words[slot >> 6] &= ~(<uint64_t> 1 << (slot & 63))
        self.count -= 1
