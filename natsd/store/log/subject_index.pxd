"""The index of a stream's subjects, for compiled callers.

    record     first u64 │ last u64 │ count u64 │ birth u32          28 bytes, in the trie's slot
               └ top bit, BOUND: only a bound; no message lies before (first) or after (last) it

A message's slot is that of its subject. `birth` numbers the subjects that a slot was given to: a
note about a slot is valid as long as its birth is unchanged. A record with count 0 is empty: its
last message was removed, but the removal may still be undone, or its name was not at hand (`Sweep`
in removal.pyx finds it).
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.trie.in_memory cimport RecordTrie

cdef enum:
    SUBJECT_BYTES = 28
    BIRTH_LAST = 0x7fffffff         # leaves one bit of 32 to a Filter's memo
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

cdef struct FrozenSubjects:         # records that subject_snapshot.pyx has not written yet
    Subject** pages                 # copies of FROZEN_PAGE records; NULL: unchanged
    uint32_t top                    # slots from this one on were not in use
    bint failed                     # no memory for a copy


cdef inline uint64_t sequence_in(uint64_t edge) noexcept nogil:
    """Return the sequence of a first or last, exact or not."""
    return edge & ~BOUND


cdef inline bint is_exact(uint64_t edge) noexcept nogil:
    return not edge & BOUND


cdef class SubjectIndex:
    cdef readonly RecordTrie trie
    cdef readonly uint64_t count            # subjects with a message
    cdef readonly uint32_t births
    # Slots freed so far: while this number is unchanged, each slot still has the same subject.
    cdef uint64_t frees
    # Subjects that got a first message so far, now empty ones included: while this number is
    # unchanged, there is no new subject.
    cdef uint64_t arrivals
    cdef readonly uint64_t empty_subjects   # subjects without a message
    cdef dict removed_names                 # name of an empty subject -> generation, ascending
    cdef uint32_t generation
    cdef uint32_t forgettable               # this generation and older ones can be forgotten
    cdef char* recent                       # name of the subject that was placed last
    cdef uint32_t recent_len
    cdef uint32_t recent_room
    cdef int64_t recent_slot                # -1: none
    cdef FrozenSubjects* frozen             # NULL: no snapshot is being taken

    # `successor` returns an empty index for the same log; `outlive` puts this index back in the
    # place of its successor. Neither lets births, frees and arrivals repeat, so notes made with
    # them stay valid.
    cdef SubjectIndex successor(self)
    cdef int outlive(self, SubjectIndex successor) except -1

    # Return the slot of a subject; -1: none. `place` creates the subject if need be: it is empty
    # until a message is noted.
    cdef int64_t find(self, const char* subject, Py_ssize_t length) noexcept nogil
    cdef int64_t place(self, const char* subject, uint32_t length) except -1
    cdef int64_t place_slowly(self, const char* subject, uint32_t length) except -1
    cdef int remember(self, const char* subject, uint32_t length, int64_t slot) except -1
    cdef Subject* record(self, int64_t slot) noexcept nogil
    # Copy the slot's page before a record changes while a snapshot is being taken.
    cdef void keep(self, int64_t slot) noexcept nogil

    # Note that a message of the subject was appended, was removed, or came back after a rollback.
    cdef void note(self, int64_t slot, uint64_t sequence) noexcept
    cdef void unnote(self, int64_t slot, uint64_t sequence) noexcept
    cdef void renote(self, int64_t slot, uint64_t sequence) noexcept
    cdef void set_first(self, int64_t slot, uint64_t sequence) noexcept
    cdef void set_last(self, int64_t slot, uint64_t sequence) noexcept

    # Subjects without messages. `remember_removed` keeps the name of one. Names up to a generation
    # are forgotten once their removal cannot be undone any more: some at once, the rest by
    # `forget_some`, which returns whether more are left. `forget` removes a single one from the
    # trie without `remember_removed`.
    cdef int remember_removed(self, const char* subject, Py_ssize_t length) except -1
    cdef uint32_t seal(self) noexcept
    cdef int forget_removed_names(self, uint32_t generation) except -1
    cpdef bint forget_some(self) except -1
    cdef int forget(self, const char* subject, Py_ssize_t length, int64_t slot) except -1
