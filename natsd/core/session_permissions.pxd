"""Declarations of session_permissions.pyx."""

from libc.stdint cimport int64_t

from natsd.core.routing cimport MatchResult, PermissionRules


cdef enum Publishing:           # whether a message may be published
    REFUSED_BY_RULES
    ALLOWED_BY_RULES            # and so is every later one on its subject
    ALLOWED_AS_RESPONSE         # the next one on its subject must be checked again


cdef class SessionPermissions:
    cdef readonly PermissionRules rules
    cdef bint filters                   # deliveries are checked: a subscription overlaps a denial
    cdef bint tracks_replies            # deliveries with a reply allow a response
    cdef ResultSet published            # match results of subjects that the rules allow
    cdef dict received                  # subject, and behind a space the queue -> may be delivered
    cdef object responses               # reply subject -> (responses so far, time of the request)

    cdef Publishing may_publish(
        self, const char* subject, Py_ssize_t length, MatchResult result
    ) except? REFUSED_BY_RULES
    cdef bint may_subscribe(self, bytes subject, bytes queue) except -1
    cdef bint may_receive(self, bytes subject, bytes queue) except -1
    cdef int note_request(self, const char* reply, Py_ssize_t length) except -1
    cdef bint take_response(self, bytes reply) except -1
    cdef bint is_over(self, int64_t since_ns, int64_t now_ns) noexcept
