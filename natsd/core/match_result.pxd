"""The match result: the subscriptions that receive one published subject (match_result.pyx)."""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t


cdef struct SubArray:           # header of an array of owned references, which follow it in memory
    uint32_t owners             # results that use a prefix of the array
    uint32_t used               # references in the array
    uint32_t capacity
    uint32_t reserved

cdef struct SubSlice:           # subscriptions of a result
    PyObject** subs             # the first ones of `array`
    uint32_t count
    SubArray* array             # NULL: none

cdef struct QueueResult:        # one queue group, merged over all matching nodes; it has a member
    SubSlice members            # of this server, each as often as its weight says
    SubSlice remote             # of other servers, likewise
    uint32_t name_len
    const char* name            # points into the text of a member
    uint64_t hash               # hash of the name

cdef class MatchResult:
    cdef char* subject
    cdef Py_ssize_t subject_len
    cdef readonly bint live     # the SubList would still answer the same; only the SubList sets it
    cdef readonly bint has_remote   # it lists subscriptions of other servers
    cdef SubSlice plain_local   # plain subscriptions of this server
    cdef SubSlice plain_remote  # plain subscriptions of other servers
    cdef uint32_t queue_count
    cdef QueueResult* queue_groups
    # Storage.
    cdef uint32_t subject_capacity
    cdef uint32_t queue_capacity
    cdef PyObject* next_retired  # link in MatchCache.retired

    # Only the SubList calls these two, while no other code holds the result.
    cdef int fill(
        self, const char* subject, Py_ssize_t length, NodeList* nodes
    ) except -1
    cdef void empty(self) noexcept
    # A new result that also lists `sub`; None: there are too many queue groups to copy.
    cdef MatchResult extended(self, Subscription sub)

    cdef int _keep_subject(self, const char* subject, Py_ssize_t length) except -1
    cdef int _merge_groups(self, NodeList* nodes, uint32_t group_total) except -1
    cdef int _merge_group(self, QueueGroup* group, uint32_t* index, uint32_t span) except -1
    cdef void _name_group(self, QueueResult* group) noexcept
    cdef QueueResult* _group_named(
        self, QueueGroup* group, uint32_t* index, uint32_t span
    ) except NULL
    cdef QueueResult* _add_group(self, uint64_t hash, uint32_t name_len) except NULL
    cdef int _reserve_groups(self, uint32_t capacity) except -1
    cdef int _share(self, MatchResult other) except -1
    cdef int _join_group(self, Subscription sub) except -1


cdef enum:
    PATCHED_GROUPS_MAX = 64


cdef inline uint32_t fanout_of(MatchResult result) noexcept:
    """Return the deliveries per message: one per plain subscription, one per queue group."""
    return result.plain_local.count + result.plain_remote.count + result.queue_count


cdef inline Subscription plain_at(MatchResult result, uint32_t place):
    """Return a plain subscription of this server by its index."""
    return <Subscription> result.plain_local.subs[place]
