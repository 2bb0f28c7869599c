"""See scheduler.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from natsd.core.network cimport Reactor
from natsd.core.routing cimport Sink


cdef class Actor(Sink):
    """An object that takes messages, does work in slices, and has at most one deadline."""

    cdef bint is_queued        # `run` is going to be called
    cdef readonly int64_t due_ns  # deadline, wall-clock ns; 0: none
    cdef Py_ssize_t place      # index in the scheduler's heap; -1: not in it

    # Does one slice of work, about 200 us at most; returns True if there is more to do.
    cdef bint run(self, int64_t now_ns) except? -1
    # Called when the deadline has passed; it has been taken out of the heap before.
    cdef int expired(self, int64_t now_ns) except -1


cdef class Alarm(Actor):
    cdef readonly Scheduler scheduler
    cdef object callback


cdef class Job(Actor):
    cdef readonly Scheduler scheduler
    cdef object work


cdef class Scheduler:
    cdef readonly Reactor reactor
    cdef object clock        # returns wall-clock ns; None: the system clock, read without an object
    cdef readonly bint is_closed

    # Actors with work: a ring of references, `queued` of them from index `head` on.
    cdef PyObject** ring
    cdef Py_ssize_t capacity   # a power of two
    cdef Py_ssize_t head
    cdef Py_ssize_t queued
    cdef bint is_summoned      # the reactor is going to call `work`
    cdef object work           # the bound method, created once

    # Actors with a deadline: a binary heap of references, the earliest deadline first.
    cdef PyObject** heap
    cdef Py_ssize_t heap_capacity
    cdef Py_ssize_t pending
    cdef object timer          # one timer for all deadlines; None: not set
    cdef int64_t timer_ns      # time the timer is set for, wall-clock ns

    # Returns the wall clock in ns.
    cdef int64_t now(self) except -1
    # Has `run` called at the end of this turn; once, however often an actor is submitted.
    cdef int submit(self, Actor actor) except -1
    # Sets the actor's only deadline, replacing the previous one; 0: none.
    cdef int set_deadline(self, Actor actor, int64_t due_ns) except -1

    cdef int grow_ring(self) except -1
    cdef int summon(self) except -1
    cdef Actor take_next(self)
    cdef int run_some(self) except -1
    cdef int run_one(self, Actor actor, int64_t now_ns) except -1
    cdef int expire_some(self, int64_t now_ns) except -1
    cdef int arm(self, int64_t now_ns) except -1
    cdef int add_to_heap(self, Actor actor) except -1
    cdef int take_from_heap(self, Actor actor) except -1
    cdef void rise(self, Py_ssize_t place) noexcept
    cdef void sink(self, Py_ssize_t place) noexcept
    cdef void stand(self, Py_ssize_t place, PyObject* actor) noexcept
