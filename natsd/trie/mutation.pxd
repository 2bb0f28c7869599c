"""One key in, one key out."""

from libc.stdint cimport int32_t

from natsd.trie.memory cimport TrieMemory

# Why a write was refused; nothing is changed then.
cdef enum:
    NO_ROOM = -1                # the size limit
    NO_MEMORY = -2
    NOT_THERE = -3              # no such key

# The key's slot; or NO_ROOM, NO_MEMORY. New content is `initial`, or zero where that is NULL.
cdef int32_t insert_key(
    TrieMemory* memory, const unsigned char* key, Py_ssize_t length,
    const unsigned char* initial, bint* created,
) noexcept nogil
# The slot it had, which is retired; or NOT_THERE, NO_ROOM, NO_MEMORY.
cdef int32_t remove_key(
    TrieMemory* memory, const unsigned char* key, Py_ssize_t length
) noexcept nogil
