"""BlockList: which block a sequence is in.

A block covers what lies from its base up to the next block's. The bases stand in an array of their
own, so that a search touches no block. Changes are rare (one per block), and copy the array.
Of each block but the active one it is known which slots it may have (slot_presence.pyx).
"""

from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from natsd.store.block cimport MsgBlock
from natsd.store.slot_marks cimport FEW_SLOTS, SlotMarks
from natsd.store.slot_presence cimport SlotPresence, presence_of


cdef class BlockList:
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
        """How many blocks end before `sequence`; the last one never does."""
        cdef uint32_t found = 0
        while found + 1 < self.count and self.bases[found + 1] <= sequence:
            found += 1
        return found

    cdef bint may_have(self, uint32_t place, uint32_t slot) except -1:
        cdef SlotPresence presence = self.presence(place)
        return presence is None or presence.may_have(slot)

    cdef bint may_have_any(self, uint32_t place, SlotMarks marks) except -1:
        cdef SlotPresence presence
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

    cdef SlotPresence presence(self, uint32_t place):
        """Made when first asked for while the block's arrays are there; never for the active one,
        which goes on changing."""
        cdef SlotPresence found = <SlotPresence> PyList_GET_ITEM(self.presences, place)
        cdef MsgBlock block
        if found is None and place + 1 < self.count:
            block = self.at(place)
            if block.has_arrays:
                found = presence_of(&block.index)
                self.presences[place] = found
        return found

    cdef int set(self, list blocks) except -1:
        """After a rollback, too: what was known of slots may have changed."""
        self.blocks = blocks
        self.indexed = []
        self.presences = []
        return self.index()

    cdef int add(self, MsgBlock block) except -1:
        self.blocks.append(block)
        self.index()
        if self.count > 1:
            self.presence(self.count - 2)       # before its arrays may be dropped
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
        """The blocks have changed."""
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
        cdef SlotPresence each
        cdef size_t total = 0
        for each in self.presences:
            if each is not None:
                total += each.memory_bytes()
        return total
