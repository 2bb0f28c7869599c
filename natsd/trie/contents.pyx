"""Segments of content slots, and the readers' side of the sequence locks."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset


cdef extern from "natsd/trie/segments.h" nogil:
    void* segment_take(size_t size) noexcept
    void segment_give(void* segment, size_t size) noexcept

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef enum:
    SPINS_BEFORE_YIELD = 64     # a write takes nanoseconds, unless its thread is descheduled


cdef inline uint64_t segment_first_slot(uint32_t segment) noexcept nogil:
    return (<uint64_t> 4) << segment if segment else 0


cdef inline uint64_t segment_slots(uint32_t segment) noexcept nogil:
    cdef uint64_t start = segment_first_slot(segment)
    return min(start if segment else SLOT_SEGMENT_FIRST, SLOTS_MAX - start)


cdef void open_contents(Contents* contents, uint32_t record_bytes) noexcept nogil:
    """Prepare slots for records of so many bytes, with their locks; 0: for objects."""
    memset(contents, 0, sizeof(Contents))
    contents.holds_objects = record_bytes == 0
    contents.width = record_bytes if record_bytes else sizeof(void*)
    contents.stride = (contents.width + 3) & ~(<uint32_t> 3)
    contents.free = NO_FREE_SLOT


cdef int grow_slots(Contents* contents) noexcept nogil:
    cdef uint64_t start, count
    cdef uint32_t segment
    cdef unsigned char* address
    if contents.end == SLOTS_MAX:
        return -1
    segment = log2_u32((contents.end >> 2) | 1) if contents.end else 0
    start = segment_first_slot(segment)
    count = segment_slots(segment)
    address = <unsigned char*> segment_take(count * contents.stride)
    if address == NULL:
        return -2
    contents.base[segment] = <uintptr_t> address - start * contents.stride
    release_fence()
    contents.end = <uint32_t> (start + count)
    return 0


cdef int release_objects(Contents* contents) noexcept:
    """Release all objects; a free slot holds the index of the next one, and no object."""
    cdef uint32_t slot = contents.free
    cdef uint32_t next
    while slot != NO_FREE_SLOT:
        next = (<uint32_t*> slot_address(contents, slot))[0]
        memset(slot_address(contents, slot), 0, contents.width)
        slot = next
    for slot in range(contents.top):
        Py_XDECREF((<PyObject**> slot_address(contents, slot))[0])
    return 0


cdef void close_contents(Contents* contents) noexcept nogil:
    cdef uint32_t segment
    if contents.holds_objects:
        with gil:
            release_objects(contents)
    for segment in range(SLOT_SEGMENTS):
        if segment_first_slot(segment) < contents.end:
            segment_give(
                <void*> (contents.base[segment] + segment_first_slot(segment) * contents.stride),
                segment_slots(segment) * contents.stride,
            )
    contents.end = contents.top = 0


cdef void copy_slot(
    const Contents* contents, uint32_t slot, unsigned char* into
) noexcept nogil:
    cdef unsigned char* address = slot_address(contents, slot)
    cdef const uint32_t* lock = &contents.locks[slot % RECORD_LOCKS]
    cdef uint32_t before
    cdef uint32_t spins = 0
    while True:
        before = acquire_u32(lock)
        if before & 1 == 0:
            memcpy(into, address, contents.width)
            acquire_fence()
            if relaxed_u32(lock) == before:
                return
        spins += 1
        if spins % SPINS_BEFORE_YIELD == 0:
            sched_yield()
