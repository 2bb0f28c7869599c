"""Declarations of interest_observers.pyx."""

from libc.stdint cimport int64_t


cdef class InterestPeer(Sink):      # what passes local interest on to another server
    # The local weight of the interest of `sub` has changed.
    cdef int interest_changed(self, Subscription sub, int64_t before, int64_t after) except -1


cdef class InterestObservers:
    cdef dict watches          # `watch_name` (subject, NUL, queue) -> list of callables
    cdef list observers        # (callable, whether only local weights are told)
    cdef list peers            # InterestPeer

    cdef bint is_empty(self) noexcept
    cdef void changed(self, Subscription sub, Weights before, Weights after) noexcept


cdef bytes watch_name(bytes subject, bytes queue)
