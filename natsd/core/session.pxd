"""Declarations of session.pyx."""

from libc.stdint cimport int64_t

from natsd.core.routing cimport Kind, Message, Origin, Sink, SubList, Subscription


cdef class Endpoint(Pollable)


cdef class Session(Sink):
    cdef Reactor reactor
    cdef readonly Endpoint endpoint      # never another one; after the end it takes no bytes
    cdef object current_account          # natsd.accounts.Account; None: none yet
    cdef Origin origin                   # of the messages that the peer publishes

    cdef int read_over(self) except -1             # the bytes of a read were handled
    cdef int before_flush(self) except -1          # pending bytes are about to be sent
    cdef int check_deadlines(self, int64_t now_ns) except -1
    cdef int end(self) except -1                   # the endpoint was torn down


cdef Session nobody             # the session of an endpoint that has ended
