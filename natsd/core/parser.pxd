"""See parser.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from natsd.core.subscription cimport Message, Sink


cpdef enum Violation:
    UNKNOWN_OPERATION = 1      # no such operation, or a payload without its CRLF
    CONTROL_LINE = 2           # a line longer than max_control_line
    MAX_PAYLOAD = 3
    BAD_ARGUMENTS = 4          # wrong number of arguments, or a size that is none
    HEADERS_NOT_SUPPORTED = 5  # HPUB without headers negotiated
    CONNECT_REQUIRED = 6       # another operation before the CONNECT that authenticates


cdef struct Args:
    # The arguments of a control line, in place.
    const char* at[5]
    Py_ssize_t size[5]
    int count


cdef class OpHandler(Sink):
    # Settings the parser reads; the owner of the connection writes them.
    cdef int32_t max_control_line_bytes
    cdef int64_t max_payload_bytes        # -1: no limit
    cdef bint headers                     # HPUB was negotiated
    cdef bint awaiting_connect            # nothing but CONNECT is welcome
    # Stop behind the current frame: set by a handler in the middle of a parse, or by a violation.
    cdef bint suspended
    cdef int begun                        # the operation whose name was consumed without its line
    # A payload too large for the read buffer, being collected (see parser.pyx).
    cdef PyObject* large                  # bytes object of size + 2, or NULL
    cdef Py_ssize_t large_filled
    cdef char* large_line                 # its control line, from the subject on
    cdef Message large_message

    cdef int on_publish(self, Message* message) except -1
    cdef int on_subscribe(self, Args* args) except -1
    cdef int on_unsubscribe(self, Args* args) except -1
    cdef int on_ping(self) except -1
    cdef int on_pong(self) except -1
    cdef int on_connect(self, const char* json, Py_ssize_t size) except -1
    cdef int on_info(self, const char* json, Py_ssize_t size) except -1
    cdef int on_error(self, const char* text, Py_ssize_t size) except -1
    cdef int on_violation(self, Violation violation, const char* at, Py_ssize_t size) except -1

    cdef Py_ssize_t parse(self, const char* buffer, Py_ssize_t size) except -1
    cdef char* large_space(self, Py_ssize_t* size) noexcept
    cdef int large_received(self, Py_ssize_t size) except -1
    cdef void large_drop(self) noexcept
    cdef Py_ssize_t take(self, const char* buffer, Py_ssize_t size) except -1
