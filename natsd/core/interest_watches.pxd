"""Declarations of interest_watches.pyx."""


cdef class InterestWatches:
    cdef dict callbacks        # `watch_name` (subject, NUL, queue) -> list of callables

    cdef int add(self, bytes name, object callback) except -1
    cdef bint drop(self, bytes name, object callback) except -1    # True: no watch is left
    cdef void changed(self, Subscription sub, bint is_there) noexcept
    cdef void all_gone(self) noexcept


cdef bytes watch_name(bytes subject, bytes queue)
cdef bint is_alone(Subscription sub) noexcept
