"""Cells of 32 bytes in segments that never move: what a 32-bit pointer points into.

    offset     0      1024   2048   4096        8192                2^30 …  2^31
    segment    │   0   │  1   │  2   │     3     │   … each as long as all before it   │

- Segment k > 0 begins at 512 << k, so the segment of an offset is the position of its highest bit;
  `base[k]` is the segment's address less its first offset: an address is one table entry plus the
  offset. A trie of a few keys holds 1 KiB. What a large segment has not handed out yet was never
  touched and takes no memory.
- A segment is published before any pointer into it is: a reader that got the pointer by an acquire
  load finds its segment.
- A freed cell keeps the offset of the next free one in its first four bytes.
- `reserve_cells` comes before a write and may refuse; `take_cell` after it never does.
"""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.string cimport memset

from natsd.trie.atomics cimport log2_u32


cdef enum:
    CELL_BYTES = 32
    CELL_MASK = 31              # the low bits of a pointer: what kind of node it points to
    CELL_SEGMENTS = 22
    CELL_SEGMENT_FIRST_BYTES = 1024
    CELL_BYTES_MAX = 0x7fffffe0
    NO_FREE_CELL = 1            # no cell begins there; 0 is a cell like others
    WAITING_SHARE = 16          # one in so many cells may wait while a Split takes new ones

cdef struct Cells:
    uintptr_t[CELL_SEGMENTS] base
    uint32_t top                # first byte never handed out
    uint32_t end                # first byte that no segment holds
    uint32_t limit              # and where they may not go
    uint32_t free               # a recycled cell, or NO_FREE_CELL
    uint32_t free_count


cdef inline unsigned char* cell_address(const Cells* cells, uint32_t offset) noexcept nogil:
    """Address of a byte of a cell; with a pointer, of the byte its low bits say."""
    return <unsigned char*> (cells.base[log2_u32((offset >> 9) | 1)] + offset)


cdef inline uint32_t cells_left(const Cells* cells) noexcept nogil:
    """How many `take_cell` can give without a new segment."""
    return cells.free_count + (cells.end - cells.top) // CELL_BYTES


cdef inline int reserve_cells(Cells* cells, uint32_t count, uint32_t spare) noexcept nogil:
    """Make sure of so many cells, `spare` more below the limit. 0; -1: limit; -2: no memory."""
    cdef uint32_t left = cells_left(cells)
    if left + (cells.limit - cells.end) // CELL_BYTES < count + spare:
        return -1
    return 0 if left >= count else grow_cells(cells, count)


cdef inline uint32_t take_cell(Cells* cells) noexcept nogil:
    """Offset of a cell with anything in it; `reserve_cells` has made sure that there is one."""
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
    """The same, all NONE."""
    cdef uint32_t offset = take_cell(cells)
    memset(cell_address(cells, offset), 0, CELL_BYTES)
    return offset


cdef inline uint32_t take_clear_neighbour(Cells* cells) noexcept nogil:
    """The same, next to the one taken before: the cells of a Split are read one after another.

    Recycled cells lie anywhere, and wait for other uses meanwhile; when many wait they are taken.
    """
    cdef uint32_t offset = cells.top
    if offset == cells.end or cells.free_count * WAITING_SHARE > offset // CELL_BYTES:
        return take_clear_cell(cells)
    cells.top = offset + CELL_BYTES
    return offset                   # of a fresh segment, which is zero


cdef inline void give_cell(Cells* cells, uint32_t offset) noexcept nogil:
    """Back for reuse: no reader can see it any more."""
    (<uint32_t*> cell_address(cells, offset))[0] = cells.free
    cells.free = offset
    cells.free_count += 1


cdef inline uint64_t cells_in_use(const Cells* cells) noexcept nogil:
    """Cells that nodes stand in, or that wait for readers to leave them."""
    return cells.top // CELL_BYTES - cells.free_count


cdef int grow_cells(Cells* cells, uint32_t count) noexcept nogil
cdef void open_cells(Cells* cells, uint32_t limit) noexcept nogil
cdef void close_cells(Cells* cells) noexcept nogil
