"""The index of a block: finds a message by its sequence, in 8 bytes a message, or 12 if sparse.

    dense      place = sequence - base
               offsets  ┌ 64 ┬ 210 ┬ 0 ┬ 356* ┐     slots ┌ 3 ┬ 9 ┬ NO_SLOT ┬ 3 ┐
                        └────┴─────┴───┴──────┘           └───┴───┴─────────┴───┘
               0: no message has that sequence; *: removed, but its bytes are still in the block

    sparse     place by binary search in `relatives`, which has sequence - base of each message;
               the three arrays are parallel

Promise
- Sequences are added in increasing order; `base` is below or equal to the first.
- An index begins dense, and turns sparse for good once a dense one would be mostly holes.
- Nothing here needs the GIL. One thread changes an index; none reads it at the same time.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef enum:
    NO_SLOT = 0xffffffff
    REMOVED = 0x80000000        # flag in an offset
    OFFSET_MASK = 0x7fffffff

cdef struct BlockIndex:
    uint64_t base
    uint32_t* offsets
    uint32_t* slots
    uint32_t* relatives         # NULL: dense
    uint32_t count              # places in use
    uint32_t capacity
    uint32_t messages           # places with a message, removed messages included


cdef inline uint64_t index_sequence(const BlockIndex* index, uint32_t place) noexcept nogil:
    return index.base + (index.relatives[place] if index.relatives != NULL else place)


cdef inline int64_t index_find(const BlockIndex* index, uint64_t sequence) noexcept nogil:
    """Return the place of that sequence's message, removed or not; -1: none."""
    cdef int64_t place
    if index.relatives != NULL:
        place = index_seek(index, sequence)
        if place >= index.count or index_sequence(index, <uint32_t> place) != sequence:
            return -1
    elif sequence < index.base or sequence - index.base >= index.count:
        return -1
    else:
        place = <int64_t> (sequence - index.base)
    return place if index.offsets[place] else -1


cdef inline int index_add(
    BlockIndex* index, uint64_t sequence, uint32_t offset, uint32_t slot
) noexcept nogil:
    """Add a message behind the others; return 0, or -1: out of memory, and nothing changed."""
    cdef uint32_t place = index.count
    if (
        index.relatives != NULL or place == index.capacity or sequence - index.base != place
    ):
        return index_add_slowly(index, sequence, offset, slot)
    index.offsets[place] = offset
    index.slots[place] = slot
    index.count = place + 1
    index.messages += 1
    return 0


# Return the first place whose sequence is `sequence` or above; `count`: none. The place may be a
# hole.
cdef int64_t index_seek(const BlockIndex* index, uint64_t sequence) noexcept nogil
# Return the first place at or after `place` with a message that is not removed; `count`: none.
cdef uint32_t index_next_live(const BlockIndex* index, uint32_t place) noexcept nogil
cdef int index_add_slowly(
    BlockIndex* index, uint64_t sequence, uint32_t offset, uint32_t slot
) noexcept nogil
# Drop the messages at `offset` and behind it.
cdef void index_cut(BlockIndex* index, uint32_t offset) noexcept nogil
# Free the unused capacity.
cdef void index_trim(BlockIndex* index) noexcept nogil
cdef void index_free(BlockIndex* index) noexcept nogil
cdef size_t index_bytes(const BlockIndex* index) noexcept nogil
