"""Declarations of interest_observers.pyx."""


cdef class InterestObservers:
    cdef dict watches          # `watch_name` (subject, NUL, queue) -> list of callables
    cdef list observers        # (callable, whether only local weights are told)

    cdef bint is_empty(self) noexcept
    cdef void changed(self, Subscription sub, Weights before, Weights after) noexcept


cdef bytes watch_name(bytes subject, bytes queue)
