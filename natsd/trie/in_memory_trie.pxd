"""A trie whose content is any Python object."""

from natsd.trie.cell_trie cimport CellTrie


cdef class InMemoryTrie(CellTrie):
    pass
