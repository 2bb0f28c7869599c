"""The blocks of a log in their order."""

from libc.stdint cimport uint32_t, uint64_t

from natsd.store.block cimport MsgBlock


cdef class BlockList:
    cdef list blocks
    cdef uint64_t* bases                # their first sequences
    cdef uint32_t room
    cdef uint32_t count
    cdef MsgBlock active                # the last one, which is appended to; None: there is none

    # Index of the last block that begins at or before `sequence`; 0 if none does.
    cdef uint32_t place_of(self, uint64_t sequence) noexcept nogil
    cdef MsgBlock at(self, uint32_t place)
    cdef MsgBlock holding(self, uint64_t sequence)
    cdef uint32_t before(self, uint64_t sequence) noexcept nogil

    cdef int set(self, list blocks) except -1
    cdef int add(self, MsgBlock block) except -1
    cdef list take_front(self, uint32_t count)
    cdef list take_back(self, uint32_t keep)
    cdef int replace(self, MsgBlock old, MsgBlock new) except -1
    cdef int remove(self, MsgBlock block) except -1
    cdef int index(self) except -1
