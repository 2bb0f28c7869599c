"""The results of recent matches, by published subject."""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from natsd.core.match_result cimport MatchResult
from natsd.core.name_table cimport Named, NameTable
from natsd.core.subscription cimport Subscription


cdef enum:
    ENTRIES_MAX = 1024
    ENTRIES_SWEPT_TO = 256
    DOOR_SIZE = 1024
    DOOR_OPENS = 8              # for one in so many of those who knock a second time

cdef struct CacheEntry:         # followed in memory by the subject's bytes
    Named subject
    PyObject* result            # MatchResult, owned
    uint32_t place              # in MatchCache.entries
    bint hit                    # asked for since it came in, or since the last sweep

cdef class MatchCache:
    cdef NameTable by_subject   # CacheEntry
    cdef CacheEntry** entries
    cdef uint64_t* signatures   # of entries[i]: the low hash halves of its first two tokens
    cdef uint32_t count
    cdef uint32_t* door         # hash fragments of subjects turned away
    cdef uint32_t knocks        # how many knocked, scrambled
    cdef PyObject* retired      # results to release when the SubList is in order again, linked

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
    return <MatchResult> entry.result
