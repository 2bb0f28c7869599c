"""Declarations of interest_listing.pyx: weights of interest, and the order of a listing."""

from libc.stdint cimport int64_t


cdef struct Weights:            # the weight of one interest
    int64_t total               # plain subscriptions, or the weights of the group's members
    int64_t local               # the part of it of which other servers are told


cdef Weights weights_of(Subscription sub) noexcept
cdef Weights weights_at(Node* node, QueueGroup* group) noexcept
cdef Weights without(Weights weights, Subscription sub) noexcept
cdef Node* node_at(Interest interest, const char* subject, Py_ssize_t length) except? NULL
cdef Node* node_after(Interest interest, const char* subject, Py_ssize_t length) except? NULL
cdef Node* following(Node* node) noexcept
cdef bytes path_of(Node* node)
cdef int append_interests(list found, Node* node) except -1
cdef list rows_of(list found, bint local)
