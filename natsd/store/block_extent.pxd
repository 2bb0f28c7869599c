"""See block_extent.pyx."""

from libc.stdint cimport uint32_t, uint64_t


cdef class BlockBuffer:
    cdef unsigned char* data
    cdef uint32_t capacity


cdef class BlockExtent:
    """What one commit writes: bytes `offset` .. `offset + length` of the block. A buffer."""
    cdef BlockBuffer holder     # keeps `data` where it is
    cdef const unsigned char* data
    cdef readonly uint32_t offset
    cdef readonly uint32_t length
    cdef readonly uint64_t commit_number
    cdef readonly uint64_t last_sequence


cdef BlockBuffer new_buffer(size_t capacity)
# Have the memory of the first mebibyte now, rather than page by page.
cdef void populate_buffer(BlockBuffer buffer) noexcept
