"""A trie whose content is a fixed number of bytes per key, written and read without the GIL."""

from libc.stdint cimport int64_t

from natsd.trie.cell_trie cimport CellTrie
from natsd.trie.merge cimport Merge
from natsd.trie.walk cimport Walk


# What a merge does with one key: `into` is the record that it has here, zeroed if it is new, which
# no reader copies meanwhile. The slots are those of the two tries.
ctypedef void (*MergeRecord)(
    void* context, unsigned char* into, const unsigned char* update,
    int64_t slot, int64_t update_slot, bint created,
) noexcept nogil


cdef class RecordTrie(CellTrie):
    # Slot of a key, or -1. By the writer, or by the holder of a pinned lease.
    cdef int64_t find(self, const unsigned char* key, Py_ssize_t length) noexcept nogil
    # The same, created with a zeroed record where there was none. Only the writer.
    cdef int64_t insert(
        self, const unsigned char* key, Py_ssize_t length, bint* created
    ) except -2 nogil
    # The same, where a new record is `initial` from the moment that readers find it.
    cdef int64_t insert_record(
        self, const unsigned char* key, Py_ssize_t length, const unsigned char* initial,
        bint* created,
    ) except -2 nogil
    # Only the writer. Readers with a lease may go on reading the record until they leave.
    cdef bint remove(self, const unsigned char* key, Py_ssize_t length) except? -1 nogil
    cdef int _merge_walk(
        self, Merge* merge, Walk* walk, RecordTrie other, MergeRecord merge_record, void* context
    ) noexcept nogil
    cdef void _tidy(self) noexcept nogil
    cdef bint _put(self, bytes key, bytes record) except -1

    # A slot's record, at the same address until the key is removed. Others than the writer use
    # `read_record`; the writer changes it between `begin_write` and `end_write`.
    cdef unsigned char* record(self, int64_t slot) noexcept nogil
    cdef void begin_write(self, int64_t slot) noexcept nogil
    cdef void end_write(self, int64_t slot) noexcept nogil
    cdef bint read_record(self, int64_t slot, unsigned char* into) noexcept nogil

    # All keys of another trie into this one, record by record. Only the writer; the other trie may
    # be written to meanwhile. TrieFull: what was merged before stays.
    cdef int merge_records(
        self, RecordTrie other, MergeRecord merge_record, void* context
    ) except -1 nogil
