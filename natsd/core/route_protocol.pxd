"""Declarations of route_protocol.pyx."""

from natsd.core.routing cimport Message


cdef class RouteProtocol(ClientProtocol):
    cdef RouteSession session
    cdef bint is_open              # messages and interest are allowed, too
    # Of the message that is being handled or collected.
    cdef RouteLink link            # None: the account is unknown
    cdef bytes queues              # queue groups that the frame names; None: none
    cdef bytes line                # the message's control line, if the frame has another one
