"""Declarations of internal.pyx."""

from natsd.core.routing cimport Message, Sink, Subscription


cdef class CallbackSink(Sink):
    cdef Reactor reactor
    cdef object callback
    cdef bint tells_origin
    cdef tuple refused
