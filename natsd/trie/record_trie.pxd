"""A trie whose content is a fixed number of bytes per key, accessed without the GIL."""

from libc.stdint cimport int64_t


# Merges one key: `into` is the key's record in this trie, zeroed if it is new, which no reader
# copies meanwhile. The slots are those of the two tries.
ctypedef void (*MergeRecord)(
    void* context, unsigned char* into, const unsigned char* update,
    int64_t slot, int64_t update_slot, bint created,
) noexcept nogil


cdef class RecordTrie(CellTrie):
    # Return the slot of a key, or -1. For the writer, or the holder of a pinned lease.
    cdef int64_t find(self, const unsigned char* key, Py_ssize_t length) noexcept nogil
    # Return the slot of a key, created with a zeroed record if it is new. For the writer only.
    cdef int64_t insert(
        self, const unsigned char* key, Py_ssize_t length, bint* created
    ) except -2 nogil
    # Do the same as `insert`; a new record is `initial` from the moment when readers find it.
    cdef int64_t insert_record(
        self, const unsigned char* key, Py_ssize_t length, const unsigned char* initial,
        bint* created,
    ) except -2 nogil
    # Remove a key; return whether it was there. For the writer only. Readers with a lease may read
    # the record until they leave.
    cdef bint remove(self, const unsigned char* key, Py_ssize_t length) except? -1 nogil
    cdef int _merge_walk(
        self, Merge* merge, Walk* walk, RecordTrie other, MergeRecord merge_record, void* context
    ) noexcept nogil
    cdef void _tidy(self) noexcept nogil
    cdef bint _put(self, bytes key, bytes record) except -1

    # Return a slot's record, at the same address until the key is removed. Readers copy it with
    # `get`; the writer changes it between `begin_write` and `end_write`.
    cdef unsigned char* record(self, int64_t slot) noexcept nogil
    cdef void begin_write(self, int64_t slot) noexcept nogil
    cdef void end_write(self, int64_t slot) noexcept nogil

    # Merge all keys of another trie into this one, record by record. For the writer only; the other
    # trie may be written to meanwhile. Raises TrieFull; keys merged before stay.
    cdef int merge_records(
        self, RecordTrie other, MergeRecord merge_record, void* context
    ) except -1 nogil
