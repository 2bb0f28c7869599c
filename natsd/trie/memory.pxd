"""The parts of a trie: cells, contents, epochs and a root; and the preparation of a write.

`prepare` comes before each write: it ensures cells, a content slot and room for the cells that will
be retired. After it nothing can fail, so a refused write leaves the trie as it was.
"""

from libc.stdint cimport int32_t, uint32_t


cdef enum:
    SPARE_CELLS = 24            # kept below the limit, for a delete that must copy

cdef struct TrieMemory:
    Cells cells
    Contents contents
    Epochs epochs
    Pointer root
    Pointer* path               # for the write in progress: nodes at depth 0, 1, 2 …, as linked to
    Py_ssize_t path_capacity


cdef inline Pointer root_of(const TrieMemory* memory) noexcept nogil:
    return acquire_i32(&memory.root)


cdef inline void set_root(TrieMemory* memory, Pointer root) noexcept nogil:
    release_i32(&memory.root, root)


cdef inline void retire_cell(TrieMemory* memory, Pointer node) noexcept nogil:
    """Retire a node's cell: no pointer leads to it any more, but readers may still be in it."""
    retire(&memory.epochs, <int32_t> cell_of(node))


cdef inline void retire_slot(TrieMemory* memory, int32_t slot) noexcept nogil:
    retire(&memory.epochs, ~slot)


# Return 0; -1: the size limit is reached; -2: out of memory.
cdef int prepare(
    TrieMemory* memory, uint32_t cells, uint32_t spare, uint32_t retired
) noexcept nogil
cdef int prepare_path(TrieMemory* memory, Py_ssize_t depths) noexcept nogil
cdef void recycle(TrieMemory* memory) noexcept nogil
cdef void open_memory(
    TrieMemory* memory, uint32_t cell_bytes_max, uint32_t record_bytes, uint32_t garbage_limit
) noexcept nogil   # record_bytes 0: contents are objects
cdef void close_memory(TrieMemory* memory) noexcept nogil
