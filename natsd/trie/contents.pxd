"""Content slots in segments that never move: what a leaf or prefix has an index of.

    index      0    8    16   32        64            2^30 …  2^31
    segment    │ 0  │ 1  │ 2  │    3    │   … each as long as all before it

    slot       [ a record of `width` bytes, or an object's address ]   `stride` to the next one

- A slot keeps its index and address from `take_slot` until it is given back, through any change of
  the trie's structure. Records come zeroed.
- A record is changed under a sequence lock, which is odd meanwhile; a reader that met a change
  takes its copy again. Sixteen locks serve all records: no record pays for one, and those who use
  different records rarely meet.
- Slots follow one another without a gap: 64-bit fields of a record are aligned where its width is a
  multiple of 8, else to 4 bytes.
- A free slot keeps the index of the next free one in its first four bytes.
"""

from libc.stdint cimport int32_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memset

from natsd.trie.atomics cimport (
    log2_u32, relaxed_store_u32, relaxed_u32, release_fence, release_u32,
)


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
    uint32_t end                # first slot that no segment holds
    uint32_t free               # a recycled slot, or NO_FREE_SLOT
    uint32_t free_count
    bint holds_objects          # owned references; else records
    uint32_t[RECORD_LOCKS] locks


cdef inline unsigned char* slot_address(const Contents* contents, uint32_t slot) noexcept nogil:
    cdef uintptr_t base = contents.base[log2_u32((slot >> 2) | 1)]
    return <unsigned char*> (base + <uint64_t> slot * contents.stride)


cdef inline int reserve_slot(Contents* contents) noexcept nogil:
    """Make sure of one slot. 0; -1: all 2^31 are taken; -2: no memory."""
    if contents.free_count or contents.top < contents.end:
        return 0
    return grow_slots(contents)


cdef inline int32_t take_slot(Contents* contents) noexcept nogil:
    """A zeroed slot; `reserve_slot` has made sure that there is one."""
    cdef uint32_t slot = contents.free
    cdef unsigned char* address
    if slot == NO_FREE_SLOT:
        slot = contents.top
        assert slot < contents.end
        contents.top = slot + 1
        return <int32_t> slot           # of a fresh segment, which is zero
    address = slot_address(contents, slot)
    contents.free = (<uint32_t*> address)[0]
    contents.free_count -= 1
    memset(address, 0, contents.width)
    return <int32_t> slot


cdef inline void give_slot(Contents* contents, uint32_t slot) noexcept nogil:
    """Back for reuse: no reader can see it any more."""
    (<uint32_t*> slot_address(contents, slot))[0] = contents.free
    contents.free = slot
    contents.free_count += 1


cdef inline uint64_t slots_in_use(const Contents* contents) noexcept nogil:
    return contents.top - contents.free_count


# The sequence lock of a record: one writer, readers on any thread.

cdef inline void begin_slot_write(Contents* contents, uint32_t slot) noexcept nogil:
    cdef uint32_t* lock = &contents.locks[slot % RECORD_LOCKS]
    relaxed_store_u32(lock, relaxed_u32(lock) + 1)
    release_fence()


cdef inline void end_slot_write(Contents* contents, uint32_t slot) noexcept nogil:
    cdef uint32_t* lock = &contents.locks[slot % RECORD_LOCKS]
    release_u32(lock, relaxed_u32(lock) + 1)


cdef void copy_slot(
    const Contents* contents, uint32_t slot, unsigned char* into
) noexcept nogil   # one state of a record, whole; waits for a write that is under way
cdef int grow_slots(Contents* contents) noexcept nogil
cdef void open_contents(Contents* contents, uint32_t record_bytes) noexcept nogil
cdef void close_contents(Contents* contents) noexcept nogil
