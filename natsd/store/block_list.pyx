"""BlockList: which block a sequence is in.

A block covers what lies from its base up to the next block's. The bases stand in an array of their
own, so that a search touches no block. Changes are rare (one per block), and copy the array.
"""

from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from natsd.store.block cimport MsgBlock


cdef class BlockList:
    def __cinit__(self):
        self.blocks = []

    def __dealloc__(self):
        free(self.bases)

    cdef uint32_t place_of(self, uint64_t sequence) noexcept nogil:
        cdef uint32_t low = 0, high = self.count, middle
        if high and self.bases[high - 1] <= sequence:
            return high - 1
        while high - low > 1:
            middle = (low + high) >> 1
            if self.bases[middle] <= sequence:
                low = middle
            else:
                high = middle
        return low

    cdef MsgBlock at(self, uint32_t place):
        assert place < self.count
        return <MsgBlock> PyList_GET_ITEM(self.blocks, place)

    cdef MsgBlock holding(self, uint64_t sequence):
        return self.at(self.place_of(sequence))

    cdef uint32_t before(self, uint64_t sequence) noexcept nogil:
        """How many blocks end before `sequence`; the last one never does."""
        cdef uint32_t found = 0
        while found + 1 < self.count and self.bases[found + 1] <= sequence:
            found += 1
        return found

    cdef int set(self, list blocks) except -1:
        self.blocks = blocks
        return self.index()

    cdef int add(self, MsgBlock block) except -1:
        self.blocks.append(block)
        return self.index()

    cdef list take_front(self, uint32_t count):
        cdef list taken = self.blocks[:count]
        del self.blocks[:count]
        self.index()
        return taken

    cdef list take_back(self, uint32_t keep):
        cdef list taken = self.blocks[keep:]
        del self.blocks[keep:]
        self.index()
        return taken

    cdef int replace(self, MsgBlock old, MsgBlock new) except -1:
        assert new.base_sequence == old.base_sequence
        self.blocks[self.blocks.index(old)] = new
        return self.index()

    cdef int remove(self, MsgBlock block) except -1:
        self.blocks.remove(block)
        return self.index()

    cdef int index(self) except -1:
        cdef uint32_t at, count = <uint32_t> len(self.blocks)
        cdef uint64_t* bases
        if count > self.room:
            bases = <uint64_t*> realloc(self.bases, 2 * count * sizeof(uint64_t))
            if bases == NULL:
                raise MemoryError()
            self.bases = bases
            self.room = 2 * count
        for at in range(count):
            self.bases[at] = (<MsgBlock> PyList_GET_ITEM(self.blocks, at)).base_sequence
        self.count = count
        self.active = self.blocks[count - 1] if count else None
        return 0
