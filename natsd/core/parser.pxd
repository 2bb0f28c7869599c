"""Declarations of parser.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from natsd.core.routing cimport Message


cpdef enum Violation:
    UNKNOWN_OPERATION = 1      # unknown operation, or a payload without its CRLF
    CONTROL_LINE = 2           # a line longer than max_control_line
    MAX_PAYLOAD = 3            # headers and payload larger than max_payload
    BAD_ARGUMENTS = 4          # wrong number of arguments, or an invalid size
    HEADERS_NOT_SUPPORTED = 5  # HPUB without headers negotiated
    CONNECT_REQUIRED = 6       # another operation before the CONNECT that authenticates


cdef struct Args:
    # Arguments of a control line, which point into the read buffer.
    const char* at[5]
    Py_ssize_t size[5]
    int count


cdef class OpHandler(Session):
    cdef int on_publish(self, Message* message) except -1
    cdef int on_subscribe(self, Args* args) except -1
    cdef int on_unsubscribe(self, Args* args) except -1
    cdef int on_ping(self) except -1
    cdef int on_pong(self) except -1
    cdef int on_connect(self, const char* json, Py_ssize_t size) except -1
    cdef bint on_connect_omitted(self) except -1
    cdef int on_info(self, const char* json, Py_ssize_t size) except -1
    cdef int on_error(self, const char* text, Py_ssize_t size) except -1
    cdef int on_violation(self, Violation violation, const char* at, Py_ssize_t size) except -1


cdef OpHandler none_handles      # handles nothing: the handler of a protocol that has ended


cdef class ClientProtocol(Protocol):
    cdef OpHandler handler
    # Settings of the parser; the handler writes them.
    cdef int32_t max_control_line_bytes
    cdef int64_t max_payload_bytes        # -1: no limit
    cdef bint headers                     # HPUB is allowed
    cdef bint awaiting_connect            # only CONNECT is allowed
    cdef int begun                        # operation of a consumed name without arguments so far
    # A payload that is too large for the read buffer and still incomplete (see parser.pyx).
    cdef PyObject* large                  # bytes object of size + 2 (for CRLF), or NULL: none
    cdef Py_ssize_t large_filled          # received bytes of it
    cdef char* large_line                 # copy of its control line, from the subject on
    cdef Message large_message            # the message whose payload is collected

    cdef Py_ssize_t parse(self, const char* buffer, Py_ssize_t size) except -1
