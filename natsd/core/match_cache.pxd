"""The cache of recent match results, by published subject (see match_cache.pyx)."""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t


cdef enum:
    ENTRIES_MAX = 1024
    ENTRIES_SWEPT_TO = 256
    DOOR_SIZE = 1024            # buckets of the admission filter
    DOOR_OPENS = 8              # one in so many repeated subjects is admitted

cdef struct CacheEntry:         # the subject's bytes follow the struct in memory
    Named subject
    PyObject* result            # MatchResult; the entry owns a reference
    uint32_t place              # index in MatchCache.entries
    bint hit                    # looked up since it was added, or since the last sweep

cdef class MatchCache:
    cdef NameTable by_subject   # CacheEntry by subject
    cdef CacheEntry** entries   # all entries, oldest first except where one was dropped
    cdef uint64_t* signatures   # [i]: low hash halves of the first two tokens of entries[i]
    cdef uint32_t count
    cdef uint32_t* door         # admission filter: hash fragments of subjects that were refused
    cdef uint32_t knocks        # state of a pseudo-random sequence, one step per filtered subject
    cdef PyObject* retired      # linked list of results that `release` lets go of

    cdef bint admits(self, uint64_t hash) noexcept
    cdef int put(self, MatchResult result, uint64_t hash) except -1
    cdef int _make_room(self) except -1
    cdef void joined(self, Subscription sub) noexcept
    cdef void left(self, Subscription sub) noexcept
    cdef void clear(self) noexcept
    cdef void release(self) noexcept
    cdef void _sweep(self) noexcept
    cdef void _drop_oldest(self, uint32_t excess, bint even_hit) noexcept
    cdef void _drop(self, CacheEntry* entry) noexcept
    cdef void _retire(self, CacheEntry* entry) noexcept
    cdef void _end(self, MatchResult result) noexcept
    cdef void _extend(self, CacheEntry* entry, Subscription sub) noexcept
    cdef CacheEntry* _entry_of(self, Subscription sub) noexcept


cdef inline MatchResult result_of(CacheEntry* entry):
    """Return the match result of an entry."""
    return <MatchResult> entry.result
