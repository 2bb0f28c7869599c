"""The subscription trie: one level per subject token (see interest.pyx)."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint32_t, uint64_t


cdef struct Members:            # array of subscriptions; one subscription needs no allocation
    PyObject** items            # with capacity 0, the single subscription itself
    uint32_t count
    uint32_t capacity

cdef struct Node:               # one token; the path from the root to the node is its subject
    Named token
    NameTable children          # child nodes with literal tokens
    Node* star                  # child node with the token `*`; NULL: none
    Node* tail                  # child node with the token `>`; NULL: none
    Members plain               # plain subscriptions; Interest owns one reference to each
    NameTable groups            # QueueGroup by queue name
    Node* parent                # NULL: this is the root
    uint32_t untold             # plain subscriptions of which other servers are not told

cdef struct QueueGroup:
    Named name
    Members members
    Node* node
    uint64_t weight             # weights of the members together
    uint64_t untold             # the part of it of which other servers are not told

cdef struct NodeList:           # array of nodes; its memory is reused by the next walk
    Node** items
    uint32_t count
    uint32_t capacity


cdef inline PyObject** members_of(Members* members) noexcept nogil:
    """Return the array of subscriptions."""
    return members.items if members.capacity else <PyObject**> &members.items


cdef class Interest:
    cdef Node* root
    cdef readonly uint32_t count
    cdef TokenList tokens       # tokens of the subject that was inserted or matched last
    cdef NodeList found         # result of a walk: the matching nodes
    cdef NodeList here          # during a walk: the nodes of the current level
    cdef NodeList below         # during a walk: the nodes of the next level

    cdef int insert(self, Subscription sub) except -1
    cdef bint holds(self, Subscription sub) noexcept
    cdef void remove(self, Subscription sub) noexcept
    # Both fill `found` with nodes: `find` with those that match a published subject,
    # `find_colliding` with those whose subject shares a subject with a pattern. Returns 1: done;
    # 0: the subject has an empty token and matches nothing; -1: out of memory.
    cdef int find(self, const char* subject, Py_ssize_t length) noexcept nogil
    cdef int find_colliding(self, const char* subject, Py_ssize_t length) noexcept
    cdef int clear(self) except -1
    cdef void reweigh(self, Subscription sub, int32_t weight) noexcept

    cdef int _split_pattern(self, Subscription sub) except -1
    cdef int _start_walk(self, const char* subject, Py_ssize_t length) noexcept nogil
    cdef int _arrive(self, NodeList* here) noexcept nogil
    cdef int _arrive_below(self, Node* top) noexcept
