"""Declarations of route_protocol.pyx."""

from natsd.core.routing cimport Message


cdef class RouteProtocol(ClientProtocol):
    cdef RouteSession session
    cdef bint is_open              # messages and interest are allowed, too
    # Of the message that is being handled or collected.
    cdef RouteLink link            # None: the account is unknown
    cdef const char* queues        # names of queue groups, separated by blanks
    cdef Py_ssize_t queues_len     # 0: the frame names none
    cdef bytes kept_queues         # what owns `queues` while a large payload is collected
    cdef char* line                # memory for a message's control line, if the frame has another
    cdef Py_ssize_t line_bytes
