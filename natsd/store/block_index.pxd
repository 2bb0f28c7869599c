"""Where the messages of a block stand: by sequence, 8 bytes each, or 12 where most are missing.

    dense      place = sequence - base
               offsets  ┌ 64 ┬ 210 ┬ 0 ┬ 356* ┐     slots ┌ 3 ┬ 9 ┬ NO_SLOT ┬ 3 ┐
                        └────┴─────┴───┴──────┘           └───┴───┴─────────┴───┘
               0: no message has that sequence; *: removed, its bytes are still in the block

    sparse     place by binary search in `relatives`, which has sequence - base of each message;
               the three arrays are parallel

Promise
- Sequences are added in increasing order; `base` is below or equal to the first.
- An index begins dense, and turns sparse for good once a dense one would be mostly holes.
- Nothing here needs the GIL; one thread changes an index, and none reads it meanwhile.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef enum:
    NO_SLOT = 0xffffffff
    REMOVED = 0x80000000        # in an offset
    OFFSET_MASK = 0x7fffffff

cdef struct BlockIndex:
    uint64_t base
    uint32_t* offsets
    uint32_t* slots
    uint32_t* relatives         # NULL: dense
    uint32_t count              # places in use
    uint32_t capacity
    uint32_t messages           # places with a message, removed ones too


cdef inline uint64_t index_sequence(const BlockIndex* index, uint32_t place) noexcept nogil:
    return index.base + (index.relatives[place] if index.relatives != NULL else place)


cdef inline int64_t index_find(const BlockIndex* index, uint64_t sequence) noexcept nogil:
    """The place of that sequence's message, which may be removed; -1: none."""
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
    """Add a message behind the others; -1: out of memory, and nothing changed."""
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


# The first place whose sequence is `sequence` or above; `count`: none. It may be a hole.
cdef int64_t index_seek(const BlockIndex* index, uint64_t sequence) noexcept nogil
# The first place from there on with a message that is not removed; `count`: none.
cdef uint32_t index_next_live(const BlockIndex* index, uint32_t place) noexcept nogil
cdef int index_add_slowly(
    BlockIndex* index, uint64_t sequence, uint32_t offset, uint32_t slot
) noexcept nogil
# Forget the messages at `offset` and behind it.
cdef void index_cut(BlockIndex* index, uint32_t offset) noexcept nogil
# Give back what growth reserved.
cdef void index_trim(BlockIndex* index) noexcept nogil
cdef void index_free(BlockIndex* index) noexcept nogil
cdef size_t index_bytes(const BlockIndex* index) noexcept nogil
