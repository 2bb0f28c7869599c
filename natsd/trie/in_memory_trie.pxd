"""A trie whose content is any Python object."""


cdef class InMemoryTrie(CellTrie):
    cdef object _set(self, bytes key, object value)
    cdef bint _delete(self, bytes key) except -1
