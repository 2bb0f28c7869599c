"""A growable C array of items of any one type; its owner frees `items`."""

from libc.stdint cimport uint32_t
from libc.stdlib cimport realloc


cdef struct Array:
    void* items
    uint32_t count
    uint32_t capacity


cdef inline void* array_add(Array* array, size_t item_bytes) noexcept nogil:
    """Return the place of one more item at the end, uninitialised.

    Doubles the capacity when the array is full. Returns NULL, with nothing changed, if there is no
    memory.
    """
    cdef uint32_t capacity
    cdef void* grown
    if array.count == array.capacity:
        capacity = max(<uint32_t> 8, array.capacity * 2)
        grown = realloc(array.items, capacity * item_bytes)
        if grown == NULL:
            return NULL
        array.items = grown
        array.capacity = capacity
    array.count += 1
    return <char*> array.items + (array.count - 1) * item_bytes
