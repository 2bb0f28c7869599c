"""A trie whose content is a fixed number of bytes per key, written and read without the GIL."""

from libc.stdint cimport int64_t

from natsd.trie.cell_trie cimport CellTrie


cdef class RecordTrie(CellTrie):
    # Slot of a key, or -1. By the writer, or by the holder of a pinned lease.
    cdef int64_t find(self, const unsigned char* key, Py_ssize_t length) noexcept nogil
    # The same, created with a zeroed record where there was none. Only the writer.
    cdef int64_t insert(
        self, const unsigned char* key, Py_ssize_t length, bint* created
    ) except -2 nogil
    # Only the writer. Readers with a lease may go on reading the record until they leave.
    cdef bint remove(self, const unsigned char* key, Py_ssize_t length) except? -1 nogil
    cdef void _tidy(self) noexcept nogil

    # A slot's record, at the same address until the key is removed. Others than the writer use
    # `read_record`; the writer changes it between `begin_write` and `end_write`.
    cdef unsigned char* record(self, int64_t slot) noexcept nogil
    cdef void begin_write(self, int64_t slot) noexcept nogil
    cdef void end_write(self, int64_t slot) noexcept nogil
    cdef bint read_record(self, int64_t slot, unsigned char* into) noexcept nogil
