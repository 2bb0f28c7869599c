"""The walk over a trie: the interface of every trie, on which every view is built."""


cdef class Cursor:
    cdef public int depth                   # 0 at the root; -1 past the end
    cdef public int incoming_transition     # last byte of the key; -1 at the root and past the end
    cdef public bint reverse                # children are visited in descending order

    cpdef object content(self)
    cpdef bytes key(self)
    cpdef int advance(self) except -2
    cpdef int advance_multiple(self, bytearray receiver) except -2
    cpdef int advance_to_content(self) except -2
    cpdef int skip_children(self) except -2
    cpdef int skip_to(self, int depth, int transition) except -2
    cdef bint _is_before(self, int transition) noexcept
    cpdef object close(self)
