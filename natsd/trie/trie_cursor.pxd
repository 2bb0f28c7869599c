"""The cursor over a trie's own cells."""


cdef class TrieCursor(Cursor):
    cdef CellTrie trie
    cdef Walk walk
    cdef Lease* lease       # NULL past the end

    cdef int _wake(self) except -1
    cdef int _landed(self, int depth) except -2
    cdef void _leave(self) noexcept
