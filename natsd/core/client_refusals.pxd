"""Declarations of client_refusals.pyx."""

from natsd.core.routing cimport MatchResult, Message


# Refuse a message whose subject or reply belongs to the server; return whether it does.
cdef bint refuse_reserved(ClientSession session, Message* message) except -1
cdef int refuse_publish(ClientSession session, Message* message) except -1
cdef int refuse_subscription(
    ClientSession session, bytes subject, bytes queue, bytes sid
) except -1
cdef int refuse_tokens(ClientSession session, bytes subject, bytes sid) except -1
cdef int drop_forbidden(ClientSession session) except -1
cdef int close_for_violation(
    ClientSession session, Violation violation, const char* at, Py_ssize_t size
) except -1
cdef bint may_publish(ClientSession session, Message* message, MatchResult result) except -1
cdef int answer_no_responders(ClientSession session, Message* message) except -1
