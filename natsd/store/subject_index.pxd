"""Which subjects a stream has, for compiled callers.

    record     first u64 │ last u64 │ count u64 │ birth u32          28 bytes, in the trie's slot
               └ top bit: BOUND, no message before (first) or after (last), perhaps none there

A message's slot is that of its subject. `birth` numbers the slot's owners: what was noted about a
slot holds for as long as its birth is the same. A record with count 0 is a ghost: its last message
was removed, which may still be undone, or its name is not at hand (`sweep` finds it).
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.trie.record_trie cimport RecordTrie

cdef enum:
    SUBJECT_BYTES = 28
    BIRTH_LAST = 0x7fffffff         # a memo keeps a bit for itself
    FROZEN_PAGE_BITS = 10
    FROZEN_PAGE = 1 << FROZEN_PAGE_BITS     # slots

cdef extern from *:
    """
    #define NATSD_BOUND ((uint64_t)1 << 63)
    """
    uint64_t BOUND "NATSD_BOUND"

cdef struct Subject:
    uint64_t first
    uint64_t last
    uint64_t count
    uint32_t birth

cdef struct FrozenSubjects:         # what subject_snapshot.pyx has not written yet
    Subject** pages                 # copies of FROZEN_PAGE records; NULL: they are unchanged
    uint32_t top                    # slots from here on were not in use
    bint failed                     # no memory for a copy


cdef inline uint64_t sequence_in(uint64_t edge) noexcept nogil:
    """The sequence of a first or last, exact or not."""
    return edge & ~BOUND


cdef inline bint is_exact(uint64_t edge) noexcept nogil:
    return not edge & BOUND


cdef class SubjectIndex:
    cdef readonly RecordTrie trie
    cdef readonly uint64_t count            # subjects with a message
    cdef readonly uint32_t births
    # Slots given back so far: while it stays the same, each is still the same subject's.
    cdef uint64_t frees
    # Subjects that got a first message so far, ghosts too: while it stays the same, none is new.
    cdef uint64_t arrivals
    cdef readonly uint64_t ghosts           # without one
    cdef dict buried                        # name of a ghost -> generation, in that order
    cdef uint32_t generation
    cdef uint32_t forgettable               # what was buried up to that one can be forgotten
    cdef char* recent                       # the name that was placed last
    cdef uint32_t recent_len
    cdef uint32_t recent_room
    cdef int64_t recent_slot                # -1: none
    cdef FrozenSubjects* frozen             # NULL: no snapshot is being taken

    # An empty index, for the same log; and this one, back in the place of its successor. Births,
    # frees and arrivals never repeat by either, so that what was noted with them stays true.
    cdef SubjectIndex successor(self)
    cdef int outlive(self, SubjectIndex successor) except -1

    # The slot of a subject; `place` makes one, a ghost until something is noted.
    cdef int64_t find(self, const char* subject, Py_ssize_t length) noexcept nogil
    cdef int64_t place(self, const char* subject, uint32_t length) except -1
    cdef int64_t place_slowly(self, const char* subject, uint32_t length) except -1
    cdef int remember(self, const char* subject, uint32_t length, int64_t slot) except -1
    cdef Subject* record(self, int64_t slot) noexcept nogil
    # Before a record changes while a snapshot is being taken.
    cdef void keep(self, int64_t slot) noexcept nogil

    # A message of that subject was appended, removed, is there again after all.
    cdef void note(self, int64_t slot, uint64_t sequence) noexcept
    cdef void unnote(self, int64_t slot, uint64_t sequence) noexcept
    cdef void renote(self, int64_t slot, uint64_t sequence) noexcept
    cdef void set_first(self, int64_t slot, uint64_t sequence) noexcept
    cdef void set_last(self, int64_t slot, uint64_t sequence) noexcept

    # Ghosts. `bury` remembers the name of one; what was buried up to a generation is forgotten
    # once that can no more be undone: some at once, the rest by `forget_some` (is there more?).
    # `forget` does it without that.
    cdef int bury(self, const char* subject, Py_ssize_t length) except -1
    cdef uint32_t seal(self) noexcept
    cdef int forget_buried(self, uint32_t generation) except -1
    cdef bint forget_some(self) except -1
    cdef int forget(self, const char* subject, Py_ssize_t length, int64_t slot) except -1
