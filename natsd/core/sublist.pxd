"""Declarations of sublist.pyx."""

from libc.stdint cimport uint64_t


cdef class SubList:
    cdef Interest interest
    cdef MatchCache cache
    cdef readonly bint cache_enabled
    cdef readonly uint64_t num_inserts
    cdef readonly uint64_t num_removes
    cdef readonly uint64_t num_matches
    cdef readonly uint64_t num_cache_hits
    cdef MatchResult scratch    # the last result that was not cached, for reuse; or None
    cdef InterestObservers observers    # None: there are none
    cdef object listener        # what `listen` was given; None: nobody

    # The result for a published subject, never None. The caller may keep it: it does not change.
    cdef MatchResult lookup(self, const char* subject, Py_ssize_t length)
    cdef bint insert_sub(self, Subscription sub) except -1    # False: it was listed already
    cdef bint remove_sub(self, Subscription sub) except -1    # False: it is not listed here
    cdef int add_peer(self, InterestPeer peer) except -1
    cdef int remove_peer(self, InterestPeer peer) except -1
    cdef bint interested(self, const char* subject, Py_ssize_t length) except -1

    cdef MatchResult _match(self, const char* subject, Py_ssize_t length, uint64_t hash)
    cdef MatchResult _take_scratch(self)
    cdef void _unlist(self, Subscription sub, bint patch_cache) noexcept
    cdef void _settle(self) noexcept
    cdef int _forget_scratch(self) except -1
    cdef InterestObservers _observers(self)
    cdef int _forget_observers(self) except -1
