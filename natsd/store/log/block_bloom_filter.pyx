"""BlockBloomFilter: a Bloom filter of the slots in a block, by which a search skips blocks.

Each slot sets two bits. The number of bits is a power of two, about eight bits for each message; if
a block has few subjects, the filter is folded, half onto half, as long as at most an eighth of the
bits is set afterwards. One in 20 blocks without a slot is searched in vain. The filter stays when
the block's arrays are dropped: it takes a byte a message, often far less. Removals do not change
it; a slot that was given to another subject only causes one more "perhaps".
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc

from natsd.store.block.blocks cimport BlockIndex, NO_SLOT

cdef enum:
    BITS_MIN = 512
    BITS_MAX = 1 << 24
    BITS_PER_MESSAGE = 8
    DENSITY = 8                     # at most an eighth of the bits is set after folding


cdef extern from *:
    """
    #define natsd_bit_count(word) ((uint64_t)__builtin_popcountll(word))
    """
    uint64_t natsd_bit_count(uint64_t word) noexcept nogil


cdef inline uint64_t mixed(uint32_t slot) noexcept nogil:
    return (slot + <uint64_t> 1) * <uint64_t> 0x9E3779B97F4A7C15


cdef class BlockBloomFilter:
    """A Bloom filter of the slots in one block."""

    def __dealloc__(self):
        free(self.words)

    cdef bint may_have(self, uint32_t slot) noexcept nogil:
        cdef uint64_t mix = mixed(slot)
        cdef uint64_t one = (mix >> 40) & self.mask
        cdef uint64_t other = (mix >> 16) & self.mask
        return (self.words[one >> 6] >> (one & 63)) & (self.words[other >> 6] >> (other & 63)) & 1

    cdef size_t memory_bytes(self) noexcept nogil:
        return (self.mask + 1) >> 3


cdef BlockBloomFilter presence_of(const BlockIndex* index):
    cdef BlockBloomFilter made = BlockBloomFilter.__new__(BlockBloomFilter)
    cdef uint64_t bits = BITS_MIN, mix, one, other
    cdef uint32_t place
    while bits < <uint64_t> index.messages * BITS_PER_MESSAGE and bits < BITS_MAX:
        bits *= 2
    made.words = <uint64_t*> calloc(bits >> 6, 8)
    if made.words == NULL:
        raise MemoryError()
    made.mask = bits - 1
    for place in range(index.count):
        if index.slots[place] == <uint32_t> NO_SLOT:
            continue
        mix = mixed(index.slots[place])
        one = (mix >> 40) & made.mask
        other = (mix >> 16) & made.mask
        made.words[one >> 6] |= <uint64_t> 1 << (one & 63)
        made.words[other >> 6] |= <uint64_t> 1 << (other & 63)
    fold(made)
    return made


cdef int fold(BlockBloomFilter made) except -1:
    """Halve the filter while it stays sparse enough.

    With one bit less in the mask, each bit of the upper half falls onto one of the lower half.
    """
    cdef uint64_t count = (made.mask + 1) >> 6, at, found = 0
    cdef uint64_t* words
    for at in range(count):
        found += natsd_bit_count(made.words[at])
    while count > BITS_MIN >> 6 and found * DENSITY * 2 <= count << 6:
        count >>= 1
        found = 0
        for at in range(count):
            made.words[at] |= made.words[at + count]
            found += natsd_bit_count(made.words[at])
    words = <uint64_t*> realloc(made.words, count << 3)
    if words != NULL:
        made.words = words
    made.mask = (count << 6) - 1
    return 0
