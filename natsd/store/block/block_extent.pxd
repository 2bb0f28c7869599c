"""The declarations of block_extent.pyx."""

from libc.stdint cimport uint32_t, uint64_t


cdef class BlockBuffer:
    cdef unsigned char* data
    cdef uint32_t capacity


cdef class BlockExtent:
    """The bytes that one commit writes: `offset` .. `offset + length` of the block. A buffer."""
    cdef BlockBuffer holder     # keeps `data` in place
    cdef const unsigned char* data
    cdef readonly uint32_t offset
    cdef readonly uint32_t length
    cdef readonly uint64_t commit_number
    cdef readonly uint64_t last_sequence


cdef BlockBuffer new_buffer(size_t capacity)
# Allocate the memory of the first mebibyte now, rather than page by page.
cdef void populate_buffer(BlockBuffer buffer) noexcept
