"""Declarations of permission_rules.pyx."""

from libc.stdint cimport int64_t


cdef class PermissionRules:
    # Of each list of rules, what is compiled from it; None: the list is not there.
    cdef SubList publish_allowed        # None: everything
    cdef SubList publish_denied         # None: nothing
    cdef SubList subscribe_allowed      # None: everything
    cdef SubList subscribe_denied       # None: nothing
    cdef readonly tuple publish_allow   # None: everything
    cdef readonly tuple publish_deny
    cdef readonly tuple subscribe_allow     # None: everything
    cdef readonly tuple subscribe_deny
    cdef readonly int64_t responses_max     # per request; 0: no responses, below 0: any number
    cdef readonly int64_t responses_ttl_ns  # how long they are allowed; below 1: for ever

    cdef bint allows_publish(self, const char* subject, Py_ssize_t length) except -1
    cdef bint allows_subscribe(self, bytes subject, bytes queue) except -1
    cdef bint denies_delivery(self, bytes subject, bytes queue) except -1
    cdef bint may_deny_some(self, bytes subject, bytes queue) except -1
