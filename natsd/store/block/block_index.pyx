"""Growth and search of the index drawn in block_index.pxd."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc

cdef enum:
    PLACES_MIN = 16
    HOLES_ALLOWED = 1024        # in addition to one hole for each message


cdef int64_t index_seek(const BlockIndex* index, uint64_t sequence) noexcept nogil:
    cdef uint32_t low = 0
    cdef uint32_t high = index.count
    cdef uint32_t middle
    cdef uint64_t relative
    if sequence <= index.base:
        return 0
    relative = sequence - index.base
    if index.relatives == NULL:
        return <int64_t> min(relative, <uint64_t> index.count)
    while low < high:
        middle = low + (high - low) // 2
        if index.relatives[middle] < relative:
            low = middle + 1
        else:
            high = middle
    return low


cdef uint32_t index_next_live(const BlockIndex* index, uint32_t place) noexcept nogil:
    # For a hole, 0 - 1 wraps around; so holes and removed messages are both >= OFFSET_MASK here.
    while place < index.count and index.offsets[place] - 1 >= OFFSET_MASK:
        place += 1
    return place


cdef inline int resize(uint32_t** items, uint32_t capacity) noexcept nogil:
    cdef uint32_t* grown = <uint32_t*> realloc(items[0], capacity * sizeof(uint32_t))
    if grown == NULL:
        return -1
    items[0] = grown
    return 0


cdef int reserve(BlockIndex* index, uint32_t places) noexcept nogil:
    cdef uint64_t capacity = max(<uint64_t> index.capacity * 2, PLACES_MIN)
    if places <= index.capacity:
        return 0
    capacity = min(max(capacity, <uint64_t> places), <uint64_t> 0xffffffff)
    if resize(&index.offsets, <uint32_t> capacity) < 0:
        return -1
    if resize(&index.slots, <uint32_t> capacity) < 0:
        return -1
    if index.relatives != NULL and resize(&index.relatives, <uint32_t> capacity) < 0:
        return -1
    index.capacity = <uint32_t> capacity
    return 0


cdef int make_sparse(BlockIndex* index) noexcept nogil:
    cdef uint32_t* relatives = NULL
    cdef uint32_t place
    cdef uint32_t kept = 0
    if resize(&relatives, max(index.capacity, PLACES_MIN)) < 0:
        return -1
    for place in range(index.count):
        if index.offsets[place]:
            relatives[kept] = place
            index.offsets[kept] = index.offsets[place]
            index.slots[kept] = index.slots[place]
            kept += 1
    index.relatives = relatives
    index.count = kept
    return 0


cdef int index_add_slowly(
    BlockIndex* index, uint64_t sequence, uint32_t offset, uint32_t slot
) noexcept nogil:
    cdef uint64_t relative = sequence - index.base
    cdef uint32_t place
    cdef uint64_t dense_max = <uint64_t> index.messages * 2 + HOLES_ALLOWED
    if index.relatives == NULL and relative >= dense_max and make_sparse(index) < 0:
        return -1
    place = index.count if index.relatives != NULL else <uint32_t> relative
    if reserve(index, place + 1) < 0:
        return -1
    while index.count < place:
        index.offsets[index.count] = 0
        index.slots[index.count] = NO_SLOT
        index.count += 1
    if index.relatives != NULL:
        index.relatives[place] = <uint32_t> relative
    index.offsets[place] = offset
    index.slots[place] = slot
    index.count = place + 1
    index.messages += 1
    return 0


cdef void index_cut(BlockIndex* index, uint32_t offset) noexcept nogil:
    cdef uint32_t last
    while index.count:
        last = index.offsets[index.count - 1]
        if last and (last & OFFSET_MASK) < offset:
            break
        index.messages -= last != 0
        index.count -= 1


cdef void index_trim(BlockIndex* index) noexcept nogil:
    cdef uint32_t capacity = max(index.count, <uint32_t> 1)
    if index.capacity > capacity:
        # If shrinking fails, the larger array stays: that is no error.
        resize(&index.offsets, capacity)
        resize(&index.slots, capacity)
        if index.relatives != NULL:
            resize(&index.relatives, capacity)
        index.capacity = capacity


cdef void index_free(BlockIndex* index) noexcept nogil:
    free(index.offsets)
    free(index.slots)
    free(index.relatives)
    index.offsets = index.slots = index.relatives = NULL
    index.count = index.capacity = index.messages = 0


cdef size_t index_bytes(const BlockIndex* index) noexcept nogil:
    cdef size_t arrays = 3 if index.relatives != NULL else 2
    return arrays * index.capacity * sizeof(uint32_t)
