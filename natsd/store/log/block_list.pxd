"""The list of a log's blocks in sequence order, for compiled callers."""

from libc.stdint cimport uint32_t, uint64_t

from natsd.store.block.blocks cimport MsgBlock
from natsd.store.log.subjects cimport SlotMarks


cdef class BlockList:
    cdef list blocks
    cdef uint64_t* bases                # base_sequence of each block
    cdef list indexed                   # the blocks for which `presences` was made
    cdef list presences                 # BlockBloomFilter of each block; None: unknown
    cdef uint32_t room
    cdef uint32_t count
    cdef MsgBlock active                # the last block, which is appended to; None: no block

    # Return the index of the last block that begins at or before `sequence`; 0 if none does.
    cdef uint32_t place_of(self, uint64_t sequence) noexcept nogil
    cdef MsgBlock at(self, uint32_t place)
    cdef MsgBlock holding(self, uint64_t sequence)
    cdef uint32_t before(self, uint64_t sequence) noexcept nogil

    # Return whether the block may have a message in the slot, or in any marked slot; a search skips
    # a block that has none.
    cdef bint may_have(self, uint32_t place, uint32_t slot) except -1
    cdef bint may_have_any(self, uint32_t place, SlotMarks marks) except -1
    cdef BlockBloomFilter presence(self, uint32_t place)

    cdef int set(self, list blocks) except -1
    cdef int add(self, MsgBlock block) except -1
    cdef list take_front(self, uint32_t count)
    cdef list take_back(self, uint32_t keep)
    cdef int replace(self, MsgBlock old, MsgBlock new) except -1
    cdef int remove(self, MsgBlock block) except -1
    cdef int forget_active(self) except -1
    cdef int index(self) except -1
    cdef size_t presence_bytes(self) noexcept
