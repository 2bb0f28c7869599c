"""The buffer of a block that is being written, and the extent of it that one commit writes.

Promise
- A BlockBuffer's bytes do not move as long as anything but its block refers to it: a block that
  grows then takes another buffer. So an extent is valid until the last reference to it is gone.
- An extent's bytes do not change: a block appends behind them meanwhile.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdlib cimport free, malloc

cdef extern from "natsd/store/block/buffers.h" nogil:
    void natsd_populate(unsigned char* data, size_t size)


cdef class BlockBuffer:
    """Memory of `capacity` bytes, freed with the last reference to it."""

    def __dealloc__(self):
        free(self.data)


cdef BlockBuffer new_buffer(size_t capacity):
    cdef BlockBuffer buffer = BlockBuffer.__new__(BlockBuffer)
    buffer.data = <unsigned char*> malloc(capacity)
    if buffer.data == NULL:
        raise MemoryError
    buffer.capacity = <uint32_t> capacity
    return buffer


cdef void populate_buffer(BlockBuffer buffer) noexcept:
    natsd_populate(buffer.data, buffer.capacity)


cdef class BlockExtent:
    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, <void*> self.data, self.length, 1, flags)

    def __len__(self):
        return self.length
