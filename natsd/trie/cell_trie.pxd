"""The common part of both tries: the cells, the readers' side, the number of keys."""

from libc.stdint cimport int32_t, uint32_t


cdef enum:
    GARBAGE_BYTES_MAX = 4 * 1024 * 1024     # default limit of cells that wait for resting cursors


cdef class CellTrie:
    cdef TrieMemory memory
    cdef Py_ssize_t key_count       # keys with content
    cdef bint writing               # a write is in progress

    # Return the content of a slot as a Python object: the stored object, or a consistent copy of a
    # record. Called between `wake` and `rest` of a lease, or by the writer.
    cdef object content_at(self, int32_t index)
    # `set_content` writes a slot that is new or has content, and returns the replaced object, which
    # the caller must release last. `check_content` raises before anything is changed.
    cdef int check_content(self, object value) except -1     # before anything is changed
    cdef object set_content(self, int32_t index, bint created, object value)
    cdef int begin_write_call(self) except -1
    cdef void end_write_call(self) noexcept
    cdef int refuse(self, int reason) except -1
    cdef object _merge_content(self, Merge* merge, object update, object transformer)
    cdef list _merge_with(self, Merge* merge, Cursor cursor, object transformer)


cdef uint32_t cell_limit(object max_bytes) except? 0
cdef uint32_t garbage_limit(object garbage_bytes_max) except? 0
