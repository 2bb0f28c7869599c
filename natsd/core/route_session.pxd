"""Declarations of route_session.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.core.routing cimport MatchResult, Message, PermissionRules, Subscription


cdef class RouteSession(OpSession):
    cdef RouteProtocol protocol
    cdef dict links                      # account name -> RouteLink
    cdef RouteLink last_link             # of the account that the peer mentioned last; None: none
    cdef const char* last_name_text      # its name and a space, as in frames
    cdef Py_ssize_t last_name_len        # 0: frames name no account
    cdef RouteLink dedicated             # link of the only account; None: frames name the account
    cdef PermissionRules rules           # None: all interest passes in both directions
    cdef int permissions_since_begin     # how often the rules changed since `begin`

    cdef readonly uint64_t rid
    cdef readonly bint has_begun

    cdef int mention(self, RouteLink link) except -1
    cdef RouteLink link_named(self, const char* name, Py_ssize_t length)
    cdef bint may_import(self, const char* subject, Py_ssize_t length) except -1
    cdef bint may_export(self, bytes subject, bytes queue) except -1
    cdef int publish(self, RouteLink link, Message* message) except -1
    cdef int pass_on(self, MatchResult result, Message* message) except -1
    cdef int publish_traced(self, RouteLink link, MatchResult result, Message* message) except -1


cdef RouteSession no_route               # the session of a protocol that has ended
