"""What a message is on its way, who may receive it, and the interest that ties the two together."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t


cdef struct Message:
    const char* subject
    Py_ssize_t subject_len
    const char* reply          # NULL: no reply subject
    Py_ssize_t reply_len
    const char* data           # header block, then payload; CRLF always stands behind it in memory
    Py_ssize_t header_len      # 0: no headers
    Py_ssize_t data_len        # headers and payload, without the CRLF
    PyObject* owner            # the bytes object that owns `data`, or NULL: valid until deliver returns


cdef class Sink:
    cdef int deliver(self, Subscription sub, Message* message) except -1


cdef class Subscription:
    cdef char* text            # one allocation: subject, queue, sid, each NUL-terminated
    cdef uint32_t subject_len
    cdef uint32_t queue_len    # 0: plain subscription
    cdef uint32_t sid_len
    cdef int32_t weight        # how often a remote queue subscription stands in its group
    cdef bint closed           # no longer wanted by its owner: deliver must skip it
    cdef int64_t delivered
    cdef int64_t max_delivered # auto-unsubscribe after that many; 0: never
    cdef Sink sink
    # The SubList's own: where this subscription stands.
    cdef void* node
    cdef void* group
    cdef uint32_t index
