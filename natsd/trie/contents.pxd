"""Content slots in segments that never move; a leaf or prefix holds the index of a slot.

    index      0    8    16   32        64            2^30 …  2^31
    segment    │ 0  │ 1  │ 2  │    3    │   … each as long as all before it

    slot       [ a record of `width` bytes, or an object's address ]   `stride` to the next one

- A slot keeps its index and address from `take_slot` until it is returned, through any change of
  the trie's structure. New records are zero.
- A record is changed under a sequence lock, whose value is odd during the change; a reader that met
  a change copies again. Sixteen locks serve all records: a record needs no memory for a lock, and
  accesses to different records rarely share one.
- Slots follow one another without a gap: the 64-bit fields of a record are aligned if its width is
  a multiple of 8, else to 4 bytes.
- A free slot holds the index of the next free one in its first four bytes.
"""

from libc.stdint cimport int32_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memset


cdef enum:
    SLOT_SEGMENTS = 29
    SLOT_SEGMENT_FIRST = 8
    SLOTS_MAX = 0x7fffffff
    NO_FREE_SLOT = 0xffffffff
    RECORD_LOCKS = 16

cdef struct Contents:
    uintptr_t[SLOT_SEGMENTS] base
    uint32_t width              # bytes of content in a slot
    uint32_t stride             # bytes from one slot to the next
    uint32_t top                # first slot never handed out
    uint32_t end                # first slot without a segment
    uint32_t free               # a recycled slot, or NO_FREE_SLOT
    uint32_t free_count
    bint holds_objects          # owned references; else records
    uint32_t[RECORD_LOCKS] locks


cdef inline unsigned char* slot_address(const Contents* contents, uint32_t slot) noexcept nogil:
    cdef uintptr_t base = contents.base[log2_u32((slot >> 2) | 1)]
    return <unsigned char*> (base + <uint64_t> slot * contents.stride)


cdef inline int reserve_slot(Contents* contents) noexcept nogil:
    """Ensure one free slot; return 0, -1: all 2^31 are in use, -2: out of memory."""
    if contents.free_count or contents.top < contents.end:
        return 0
    return grow_slots(contents)


cdef inline int32_t take_slot(Contents* contents) noexcept nogil:
    """Return a zeroed slot; `reserve_slot` must have ensured it."""
    cdef uint32_t slot = contents.free
    cdef unsigned char* address
    if slot == NO_FREE_SLOT:
        slot = contents.top
        assert slot < contents.end
        contents.top = slot + 1
        return <int32_t> slot           # of a new segment, so it is zero
    address = slot_address(contents, slot)
    contents.free = (<uint32_t*> address)[0]
    contents.free_count -= 1
    memset(address, 0, contents.width)
    return <int32_t> slot


cdef inline void give_slot(Contents* contents, uint32_t slot) noexcept nogil:
    """Return a slot for reuse; no reader can see it any more."""
    (<uint32_t*> slot_address(contents, slot))[0] = contents.free
    contents.free = slot
    contents.free_count += 1


cdef inline uint64_t slots_in_use(const Contents* contents) noexcept nogil:
    return contents.top - contents.free_count


# The sequence lock of a record: one writer, readers in any thread.

cdef inline void begin_slot_write(Contents* contents, uint32_t slot) noexcept nogil:
    cdef uint32_t* lock = &contents.locks[slot % RECORD_LOCKS]
    relaxed_store_u32(lock, relaxed_u32(lock) + 1)
    release_fence()


cdef inline void end_slot_write(Contents* contents, uint32_t slot) noexcept nogil:
    cdef uint32_t* lock = &contents.locks[slot % RECORD_LOCKS]
    release_u32(lock, relaxed_u32(lock) + 1)


cdef void copy_slot(
    const Contents* contents, uint32_t slot, unsigned char* into
) noexcept nogil   # copies one consistent state of a record; waits for a write in progress
cdef int grow_slots(Contents* contents) noexcept nogil
cdef void open_contents(Contents* contents, uint32_t record_bytes) noexcept nogil
cdef void close_contents(Contents* contents) noexcept nogil
