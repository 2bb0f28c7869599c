"""Declarations of verdicts.pyx."""


cdef class Verdicts:
    cdef object permissions     # natsd.core.permissions.Permissions
    cdef dict publish           # subject -> verdict
    cdef dict subscribe         # subject, and behind a space the queue -> verdict

    cdef bint may_publish(self, const char* subject, Py_ssize_t length) except -1
    cdef bint may_subscribe(self, bytes subject, bytes queue) except -1
