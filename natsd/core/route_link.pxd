"""Declarations of route_link.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from libc.string cimport memcmp

from natsd.core.routing cimport InterestPeer, MatchResult, Message, SubList, Subscription


cdef class RouteSession(OpSession)


cdef inline bint is_measured(const char* reply, Py_ssize_t length) noexcept:
    """Return whether a reply subject is that of a request whose latency a server measures.

    Such a subject is `_R_.<prefix>.<key>.<hash of the server>.T`.
    """
    return (
        length > 6 and reply[length - 1] == c"T" and reply[length - 2] == c"."
        and memcmp(reply, b"_R_.", 4) == 0
    )


cdef class RouteLink(InterestPeer):
    cdef RouteSession session
    cdef readonly object account         # natsd.accounts.Account
    cdef SubList sublist
    cdef TrafficStats account_counters
    cdef bytes name                      # account and space, as frames name it; empty: they do not
    cdef readonly bint is_carried        # the peer is told of local interest
    cdef dict subscriptions              # of the peer: subscription_key -> Subscription
    cdef MatchResult memo                # match of what the peer published last; None: none
    cdef readonly int64_t in_msgs        # of this account, from the peer
    cdef readonly int64_t in_bytes
    cdef readonly int64_t out_msgs       # to the peer
    cdef readonly int64_t out_bytes

    # While a message is distributed: whether this link takes it, and for which queue groups.
    cdef bint is_noted
    cdef PyObject* next_noted
    cdef char* queues                    # names, with a space behind each
    cdef Py_ssize_t queues_len
    cdef Py_ssize_t queues_capacity

    cdef int note_queue(self, const char* name, Py_ssize_t length) except -1
    cdef int forward(self, MatchResult result, Message* message) except -1
    cdef int announce(self, Subscription sub, int64_t weight) except -1
    cdef int tell(self, bytes line) except -1
    cdef int subscribe(self, bytes origin, bytes subject, bytes queue, int64_t weight) except -1
    cdef int unsubscribe(self, bytes origin, bytes subject, bytes queue) except -1
    cdef int carry(self) except -1
    cdef int close(self) except -1
