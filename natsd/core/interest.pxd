"""The trie of interest: who subscribed to what, level by level."""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from natsd.core.name_table cimport Named, NameTable
from natsd.core.subject cimport Token, TokenList
from natsd.core.subscription cimport Subscription


cdef struct Members:            # an array of subscriptions; a single one needs no allocation
    PyObject** items            # capacity 0: the one item itself
    uint32_t count
    uint32_t capacity

cdef struct Node:               # one token at one place; its subject is the path from the root
    Named token
    NameTable children          # Node: the literal tokens that follow
    Node* star                  # `*` follows
    Node* tail                  # `>` follows
    Members plain               # borrowed from Interest.subscriptions' references
    NameTable groups            # QueueGroup, by queue name
    Node* parent                # NULL: the root

cdef struct QueueGroup:
    Named name
    Members members
    Node* node

cdef struct NodeList:           # room is kept from walk to walk
    Node** items
    uint32_t count
    uint32_t capacity


cdef inline PyObject** members_of(Members* members) noexcept nogil:
    return members.items if members.capacity else <PyObject**> &members.items


cdef class Interest:
    cdef Node* root
    cdef readonly uint32_t count
    cdef TokenList tokens       # of the subject inserted or matched last
    cdef NodeList found         # the nodes a walk arrived at
    cdef NodeList here          # those it stands at while it goes down level by level
    cdef NodeList below         # and their children that the next token leads to

    cdef int insert(self, Subscription sub) except -1
    cdef bint holds(self, Subscription sub) noexcept
    cdef void remove(self, Subscription sub) noexcept
    # Fill `found` with the nodes that list subscriptions to the subject.
    # 1: walked; 0: the subject has an empty token, so nobody; -1: out of memory.
    cdef int find(self, const char* subject, Py_ssize_t length) noexcept nogil
    cdef int find_colliding(self, const char* subject, Py_ssize_t length) noexcept
    cdef int clear(self) except -1

    cdef int _split_pattern(self, Subscription sub) except -1
    cdef int _start_walk(self, const char* subject, Py_ssize_t length) noexcept nogil
    cdef int _arrive(self, NodeList* here) noexcept nogil
    cdef int _arrive_below(self, Node* top) noexcept
