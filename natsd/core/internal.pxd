"""Declarations of internal.pyx."""

from natsd.core.reactor cimport Reactor
from natsd.core.subscription cimport Message, Sink, Subscription


cdef class CallbackSink(Sink):
    cdef Reactor reactor
    cdef object callback
    cdef bint tells_origin


cdef class IgnoringSink(Sink):
    cdef tuple refused
