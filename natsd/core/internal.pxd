"""See internal.pyx."""

from natsd.core.reactor cimport Counters, Reactor
from natsd.core.subscription cimport Message, Subscription, Sink
from natsd.core.sublist cimport SubList


cdef class CallbackSink(Sink):
    cdef Reactor reactor
    cdef object callback


cdef class Publisher:
    cdef Reactor reactor
    cdef SubList sublist
    cdef Counters counters
