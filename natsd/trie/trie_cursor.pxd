"""The cursor over a trie's own cells."""

from natsd.trie.cell_trie cimport CellTrie
from natsd.trie.cursor cimport Cursor
from natsd.trie.epochs cimport Lease
from natsd.trie.walk cimport Walk


cdef class TrieCursor(Cursor):
    cdef CellTrie trie
    cdef Walk walk
    cdef Lease* lease       # NULL past the end

    cdef int _wake(self) except -1
    cdef int _landed(self, int depth) except -2
    cdef void _leave(self) noexcept
