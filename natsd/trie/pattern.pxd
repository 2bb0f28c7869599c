"""The keys of a trie that a NATS pattern matches, one after another, without the GIL."""

from libc.stdint cimport int64_t, uint32_t


cdef enum:
    PATTERN_END = -1
    PATTERN_STALE = -2
    PATTERN_NO_MEMORY = -3

cdef class PatternCursor:
    cdef readonly CellTrie trie
    cdef readonly Pattern pattern
    cdef unsigned char* key         # last match; valid until `next` is called again
    cdef Py_ssize_t key_len         # -1 before the first match

    # Return the slot (content index) of the next match in byte order, or one of the values above.
    cdef int64_t next(self) noexcept nogil

    # Start again behind the last match, at the present root; return 0, or PATTERN_NO_MEMORY.
    cdef int restart(self) noexcept nogil

    # Pin the lease for many calls of `next`: found contents stay readable between them, and each
    # call is quicker. Keep it short: nothing is recycled meanwhile. Returns false if the lease is
    # stale.
    cdef bint pin(self) noexcept nogil
    cdef void unpin(self) noexcept nogil

    cdef Walk walk
    cdef Lease* lease               # NULL past the end
    cdef bint pinned                # by the caller
    cdef bint unread                # the pattern has not read the walk's present path yet
    cdef uint32_t* states           # the pattern's state after each byte of the path
    cdef uint32_t capacity          # bytes of `key`; `states` has one item more
    cdef uint32_t known             # states[0..known] belong to the present path

    cdef int64_t _find(self) noexcept nogil
    cdef int _move(self) noexcept nogil
    cdef int _follow_literals(self) noexcept nogil
    cdef int _return_to_key(self) noexcept nogil
    cdef bint _reads_path(self) noexcept nogil
    cdef int _moved(self, int depth) noexcept nogil
    cdef int _grow(self) noexcept nogil
    cdef void _leave(self) noexcept nogil
    cdef int _refuse_if_in_use(self) except -1
    cdef int _pin_or_raise(self) except -1
