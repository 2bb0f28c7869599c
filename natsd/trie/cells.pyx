"""Segments of cells: allocated as the trie grows, freed when it is closed."""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.string cimport memset


cdef extern from "natsd/trie/segments.h" nogil:
    void* segment_take(size_t size) noexcept
    void segment_give(void* segment, size_t size) noexcept


cdef inline uint64_t segment_start(uint32_t segment) noexcept nogil:
    return (<uint64_t> 512) << segment if segment else 0


cdef inline uint64_t segment_size(const Cells* cells, uint32_t segment) noexcept nogil:
    cdef uint64_t size = segment_start(segment) if segment else CELL_SEGMENT_FIRST_BYTES
    return min(size, cells.limit - segment_start(segment))


cdef void open_cells(Cells* cells, uint32_t limit) noexcept nogil:
    memset(cells, 0, sizeof(Cells))
    cells.limit = limit - limit % CELL_BYTES
    cells.free = NO_FREE_CELL


cdef int grow_cells(Cells* cells, uint32_t count) noexcept nogil:
    """Add segments until `count` cells are free; return 0, or -2: out of memory.

    The caller must have checked the limit.
    """
    cdef uint64_t start, size
    cdef uint32_t segment
    cdef unsigned char* address
    while cells_left(cells) < count:
        segment = log2_u32((cells.end >> 9) | 1)
        if cells.end == 0:
            segment = 0
        start = segment_start(segment)
        size = segment_size(cells, segment)
        address = <unsigned char*> segment_take(size)
        if address == NULL:
            return -2
        cells.base[segment] = <uintptr_t> address - start
        release_fence()
        cells.end = <uint32_t> (start + size)
    return 0


cdef void close_cells(Cells* cells) noexcept nogil:
    cdef uint32_t segment
    for segment in range(CELL_SEGMENTS):
        if segment_start(segment) < cells.end:
            segment_give(
                <void*> (cells.base[segment] + segment_start(segment)),
                segment_size(cells, segment),
            )
    cells.end = cells.top = 0
