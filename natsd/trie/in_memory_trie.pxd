"""A trie whose content is any Python object."""

from natsd.trie.cell_trie cimport CellTrie


cdef class InMemoryTrie(CellTrie):
    cdef object _set(self, bytes key, object value)
    cdef bint _delete(self, bytes key) except -1
