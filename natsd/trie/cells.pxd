"""Cells of 32 bytes in segments that never move: the targets of 32-bit pointers.

    offset     0      1024   2048   4096        8192                2^30 …  2^31
    segment    │   0   │  1   │  2   │     3     │   … each as long as all before it   │

- Segment k > 0 begins at 512 << k, so the segment of an offset is the position of its highest bit.
  `base[k]` is the segment's address minus its first offset: an address is one table entry plus the
  offset. A trie of a few keys takes 1 KiB. The part of a large segment that has not been handed out
  was never touched and takes no memory.
- A segment is published before any pointer into it: a reader that loaded such a pointer with
  acquire semantics finds the segment.
- A free cell holds the offset of the next free one in its first four bytes.
- `reserve_cells` comes before a write and may refuse; `take_cell` after it never fails.
"""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.string cimport memset


cdef enum:
    CELL_BYTES = 32
    CELL_MASK = 31              # low bits of a pointer: the kind of node it points to
    CELL_SEGMENTS = 22
    CELL_SEGMENT_FIRST_BYTES = 1024
    CELL_BYTES_MAX = 0x7fffffe0
    NO_FREE_CELL = 1            # never the offset of a cell; 0 is the offset of one
    WAITING_SHARE = 16          # a Split takes recycled cells if more than one in so many is free

cdef struct Cells:
    uintptr_t[CELL_SEGMENTS] base
    uint32_t top                # first byte never handed out
    uint32_t end                # first byte without a segment
    uint32_t limit              # upper limit of `top` and `end`
    uint32_t free               # a recycled cell, or NO_FREE_CELL
    uint32_t free_count


cdef inline unsigned char* cell_address(const Cells* cells, uint32_t offset) noexcept nogil:
    """Return the address of a byte of a cell; for a pointer, of the byte that its low bits give."""
    return <unsigned char*> (cells.base[log2_u32((offset >> 9) | 1)] + offset)


cdef inline uint32_t cells_left(const Cells* cells) noexcept nogil:
    """Return how many cells `take_cell` can return without a new segment."""
    return cells.free_count + (cells.end - cells.top) // CELL_BYTES


cdef inline int reserve_cells(Cells* cells, uint32_t count, uint32_t spare) noexcept nogil:
    """Ensure `count` free cells, and room for `spare` more below the limit.

    Returns 0; -1: the limit is reached; -2: out of memory.
    """
    cdef uint32_t left = cells_left(cells)
    if left + (cells.limit - cells.end) // CELL_BYTES < count + spare:
        return -1
    return 0 if left >= count else grow_cells(cells, count)


cdef inline uint32_t take_cell(Cells* cells) noexcept nogil:
    """Return the offset of a cell with undefined content; `reserve_cells` must have ensured it."""
    cdef uint32_t offset = cells.free
    if offset != NO_FREE_CELL:
        cells.free = (<uint32_t*> cell_address(cells, offset))[0]
        cells.free_count -= 1
        return offset
    offset = cells.top
    assert offset < cells.end
    cells.top = offset + CELL_BYTES
    return offset


cdef inline uint32_t take_clear_cell(Cells* cells) noexcept nogil:
    """Return the offset of a cell that is all NONE; `reserve_cells` must have ensured it."""
    cdef uint32_t offset = take_cell(cells)
    memset(cell_address(cells, offset), 0, CELL_BYTES)
    return offset


cdef inline uint32_t take_clear_neighbour(Cells* cells) noexcept nogil:
    """Return the offset of a cleared cell next to the one taken before, if possible.

    The cells of a Split are read one after another, so they should be neighbours. Recycled cells
    lie anywhere and are kept for other uses; when many wait, one of them is taken.
    """
    cdef uint32_t offset = cells.top
    if offset == cells.end or cells.free_count * WAITING_SHARE > offset // CELL_BYTES:
        return take_clear_cell(cells)
    cells.top = offset + CELL_BYTES
    return offset                   # of a new segment, so it is zero


cdef inline void give_cell(Cells* cells, uint32_t offset) noexcept nogil:
    """Return a cell for reuse; no reader can see it any more."""
    (<uint32_t*> cell_address(cells, offset))[0] = cells.free
    cells.free = offset
    cells.free_count += 1


cdef inline uint64_t cells_in_use(const Cells* cells) noexcept nogil:
    """Return the number of cells with nodes, or waiting for readers to leave them."""
    return cells.top // CELL_BYTES - cells.free_count


cdef int grow_cells(Cells* cells, uint32_t count) noexcept nogil
cdef void open_cells(Cells* cells, uint32_t limit) noexcept nogil
cdef void close_cells(Cells* cells) noexcept nogil
