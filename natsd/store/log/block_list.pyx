"""BlockList: finds the block that holds a sequence.

A block covers the sequences from its base to just below the next block's. The bases stand in an
array of their own, so that a search touches no block. Changes are rare (one per block) and copy the
array. For each block but the active one a filter tells which slots it may have
(block_bloom_filter.pyx).
"""

from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from natsd.store.block.blocks cimport MsgBlock
from natsd.store.log.subjects cimport FEW_SLOTS, SlotMarks


cdef class BlockList:
    """The blocks of a log in sequence order, with an array of their base sequences."""

    def __cinit__(self):
        self.blocks = []
        self.presences = []
        self.indexed = []

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
        """Return how many blocks end before `sequence`; the last block never counts."""
        cdef uint32_t found = 0
        while found + 1 < self.count and self.bases[found + 1] <= sequence:
            found += 1
        return found

    cdef bint may_have(self, uint32_t place, uint32_t slot) except -1:
        cdef BlockBloomFilter presence = self.presence(place)
        return presence is None or presence.may_have(slot)

    cdef bint may_have_any(self, uint32_t place, SlotMarks marks) except -1:
        cdef BlockBloomFilter presence
        cdef uint32_t at
        if marks.marked > FEW_SLOTS:
            return True
        presence = self.presence(place)
        if presence is None:
            return True
        for at in range(marks.marked):
            if presence.may_have(marks.few[at]):
                return True
        return False

    cdef BlockBloomFilter presence(self, uint32_t place):
        """Return the block's filter of slots; None: unknown.

        The filter is made at the first call while the block's arrays are in memory; never for the
        active block, which still changes.
        """
        cdef BlockBloomFilter found = <BlockBloomFilter> PyList_GET_ITEM(self.presences, place)
        cdef MsgBlock block
        if found is None and place + 1 < self.count:
            block = self.at(place)
            if block.has_arrays:
                found = presence_of(&block.index)
                self.presences[place] = found
        return found

    cdef int set(self, list blocks) except -1:
        """Replace all blocks and forget their filters: a rollback may have changed the slots."""
        self.blocks = blocks
        self.indexed = []
        self.presences = []
        return self.index()

    cdef int add(self, MsgBlock block) except -1:
        self.blocks.append(block)
        self.index()
        if self.count > 1:
            self.presence(self.count - 2)       # before the block's arrays may be dropped
        return 0

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
        cdef Py_ssize_t at = self.blocks.index(old)
        cdef object presence = self.presences[at]
        assert new.base_sequence == old.base_sequence
        self.blocks[at] = new
        self.index()
        self.presences[at] = presence
        return self.forget_active()

    cdef int remove(self, MsgBlock block) except -1:
        self.blocks.remove(block)
        return self.index()

    cdef int forget_active(self) except -1:
        if self.count:
            self.presences[self.count - 1] = None
        return 0

    cdef int index(self) except -1:
        """Rebuild the arrays after the list of blocks changed; keep the filters of known blocks."""
        cdef uint32_t at, count = <uint32_t> len(self.blocks)
        cdef dict known = dict(zip(self.indexed, self.presences, strict=True))
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
        self.presences = [known.get(block) for block in self.blocks]
        self.indexed = self.blocks.copy()
        return self.forget_active()

    cdef size_t presence_bytes(self) noexcept:
        cdef BlockBloomFilter each
        cdef size_t total = 0
        for each in self.presences:
            if each is not None:
                total += each.memory_bytes()
        return total
