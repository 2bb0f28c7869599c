"""The keys of a trie that a NATS pattern matches, one after the other, without the GIL."""

from libc.stdint cimport int64_t, uint32_t

from natsd.trie.automaton cimport Pattern
from natsd.trie.cell_trie cimport CellTrie
from natsd.trie.epochs cimport Lease
from natsd.trie.walk cimport Walk


cdef enum:
    PATTERN_END = -1
    PATTERN_STALE = -2
    PATTERN_NO_MEMORY = -3

cdef class PatternCursor:
    cdef readonly CellTrie trie
    cdef readonly Pattern pattern
    cdef unsigned char* key         # of the last match, until `next` is called again
    cdef Py_ssize_t key_len         # -1 before the first match

    # Slot (content index) of the next match in byte order, or one of the above.
    cdef int64_t next(self) noexcept nogil

    # Start again behind the last match, from the root as it is now. 0, or PATTERN_NO_MEMORY.
    cdef int restart(self) noexcept nogil

    # Around many calls of `next`, so that what it finds stays readable between them, and each is
    # quicker. Short: nothing is recycled meanwhile. False: stale.
    cdef bint pin(self) noexcept nogil
    cdef void unpin(self) noexcept nogil

    cdef Walk walk
    cdef Lease* lease               # NULL past the end
    cdef bint pinned                # by the caller
    cdef bint unread                # the walk stands where the pattern has not looked yet
    cdef uint32_t* states           # of the pattern, after each byte of the path
    cdef uint32_t capacity          # bytes of `key`; of states, one more
    cdef uint32_t known             # states[0..known] are those of this path

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
