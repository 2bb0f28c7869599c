"""Insertion and removal of one key."""

from libc.stdint cimport int32_t


# Why a write was refused; nothing is changed then.
cdef enum:
    NO_ROOM = -1                # the size limit
    NO_MEMORY = -2
    NOT_THERE = -3              # no such key

# Return the key's slot; or NO_ROOM, NO_MEMORY. New content is `initial`, or zero if that is NULL.
cdef int32_t insert_key(
    TrieMemory* memory, const unsigned char* key, Py_ssize_t length,
    const unsigned char* initial, bint* created,
) noexcept nogil
# Return the key's slot, which is retired; or NOT_THERE, NO_ROOM, NO_MEMORY.
cdef int32_t remove_key(
    TrieMemory* memory, const unsigned char* key, Py_ssize_t length
) noexcept nogil
