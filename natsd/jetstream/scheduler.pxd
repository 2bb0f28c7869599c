"""See scheduler.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from natsd.core.reactor cimport Reactor
from natsd.core.subscription cimport Sink


cdef class Actor(Sink):
    """Something that takes messages, has work to do in slices, and has one deadline at most."""

    cdef bint is_queued        # `run` is going to be called
    cdef readonly int64_t due_ns  # when `expired` is to be called, wall clock; 0: never
    cdef Py_ssize_t place      # in the scheduler's heap; -1: not there

    # One slice of work, at most some 200 us; True: there is more to do.
    cdef bint run(self, int64_t now_ns) except? -1
    # The deadline is over; it was taken out of the heap before.
    cdef int expired(self, int64_t now_ns) except -1


cdef class Alarm(Actor):
    cdef readonly Scheduler scheduler
    cdef object callback


cdef class Job(Actor):
    cdef readonly Scheduler scheduler
    cdef object work


cdef class Scheduler:
    cdef readonly Reactor reactor
    cdef object clock          # None: the system's, read without an object
    cdef readonly bint is_closed

    # Who has work: a ring of references, `queued` of them from `head` on.
    cdef PyObject** ring
    cdef Py_ssize_t capacity   # a power of two
    cdef Py_ssize_t head
    cdef Py_ssize_t queued
    cdef bint is_summoned      # the reactor is going to call `work`
    cdef object work           # the bound method, made once

    # Who has a deadline: a binary heap of references, the earliest first.
    cdef PyObject** heap
    cdef Py_ssize_t heap_capacity
    cdef Py_ssize_t pending
    cdef object timer          # one for all deadlines, or None
    cdef int64_t timer_ns      # what it is set for, wall clock

    # Wall clock.
    cdef int64_t now(self) except -1
    # Have `run` called soon, at the end of this turn; once, however often it is asked for.
    cdef int submit(self, Actor actor) except -1
    # The actor's one deadline from now on, replacing the one before; 0: none.
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
