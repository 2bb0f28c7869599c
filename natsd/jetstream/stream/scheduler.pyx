"""The scheduler: all of a server's JetStream work in slices, and all its deadlines.

    deliver ─▶ submit ─▶ ring of actors ─┬─ end of the turn ─▶ run, run, run …   (2 ms at most)
                             ▲           │
                             └─── more ──┘
    set_deadline ─▶ heap of actors ─▶ one timer of the event loop ─▶ expired

An actor is a stream's ingest, a stream or a consumer: it takes messages as a sink, does the
resulting work later, and has one deadline.

Promise
- An actor runs outside of any `deliver`, so that the messages it sends never recurse. Actors with
  work run one slice each in turn, all of them together for at most WORK_NS; then the sockets are
  served.
- Submitting an actor that waits already, or moving a deadline, creates no object. Actors without a
  deadline cost nothing, actors with a deadline take a place in the heap. There is one timer, and
  none if there is no deadline.
- Deadlines are wall-clock nanoseconds, because they survive restarts. The timer is never set more
  than TIMER_NS ahead, so that a clock that is set forward is noticed within a second.
- If `run` or `expired` raises, the error is logged and only that slice ends.
- The ring and the heap hold references: an actor that ends removes its deadline (`set_deadline`
  with 0).
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc, realloc
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from natsd.core.network cimport Reactor, monotonic_ns
from natsd.core.routing cimport Sink

cdef enum:
    WORK_NS = 2_000_000
    TIMER_NS = 1_000_000_000
    RING_MIN = 64
    HEAP_MIN = 64


cdef object LATEST_NS = 2**63 - 1


cdef inline Actor actor_at(PyObject** actors, Py_ssize_t place):
    return <Actor>actors[place]


cdef inline bint is_before(PyObject* one, PyObject* other) noexcept:
    return (<Actor>one).due_ns < (<Actor>other).due_ns


cdef class Actor(Sink):
    """Actor without work and without deadline (see scheduler.pxd); the base of all actors."""

    def __cinit__(self):
        self.place = -1

    cdef bint run(self, int64_t now_ns) except? -1:
        return False

    cdef int expired(self, int64_t now_ns) except -1:
        return 0


cdef class Alarm(Actor):
    """Actor that calls `callback(now_ns)` at a time of the wall clock."""

    def __init__(self, Scheduler scheduler not None, callback):
        self.scheduler = scheduler
        self.callback = callback

    def set(self, due_ns not None) -> None:
        """Call at `due_ns` (wall clock) instead of any earlier setting.

        A time that has passed means soon; a time that 64 bits cannot hold is never reached.
        """
        self.scheduler.set_deadline(self, min(max(due_ns, 1), LATEST_NS))

    def cancel(self) -> None:
        """Cancel the call."""
        self.scheduler.set_deadline(self, 0)

    cdef int expired(self, int64_t now_ns) except -1:
        self.callback(now_ns)
        return 0


cdef class Job(Actor):
    """Actor for work in Python: `work(now_ns)` does one slice and returns whether there is more."""

    def __init__(self, Scheduler scheduler not None, work):
        self.scheduler = scheduler
        self.work = work

    def submit(self) -> None:
        """Start at the end of this turn; does nothing if the job waits already."""
        self.scheduler.submit(self)

    cdef bint run(self, int64_t now_ns) except? -1:
        return self.work(now_ns)


cdef class Scheduler:
    """Scheduler of one server; `clock` returns wall-clock ns, None: the system clock."""

    def __init__(self, Reactor reactor not None, clock=None):
        self.reactor = reactor
        self.clock = clock
        self.work = self._work

    def __dealloc__(self):
        free(self.ring)
        free(self.heap)

    def close(self) -> None:
        """Release every actor; from now on nothing runs and no deadline expires."""
        cdef Actor actor
        self.is_closed = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        while self.pending:
            self.take_from_heap(actor_at(self.heap, self.pending - 1))
        while self.queued:
            actor = self.take_next()
            actor.is_queued = False

    cdef int64_t now(self) except -1:
        cdef timespec now
        if self.clock is not None:
            return self.clock()
        clock_gettime(CLOCK_REALTIME, &now)
        return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec

    def now_ns(self) -> int:
        """Return the wall clock in nanoseconds."""
        return self.now()

    # ---- work

    cdef int submit(self, Actor actor) except -1:
        if actor.is_queued or self.is_closed:
            return 0
        if self.queued == self.capacity:
            self.grow_ring()
        Py_INCREF(actor)
        self.ring[(self.head + self.queued) & (self.capacity - 1)] = <PyObject*>actor
        self.queued += 1
        actor.is_queued = True
        if not self.is_summoned:
            self.summon()
        return 0

    cdef int grow_ring(self) except -1:
        cdef Py_ssize_t capacity = self.capacity * 2 if self.capacity else RING_MIN
        cdef PyObject** ring = <PyObject**>malloc(capacity * sizeof(PyObject*))
        cdef Py_ssize_t i
        if ring == NULL:
            raise MemoryError
        for i in range(self.queued):
            ring[i] = self.ring[(self.head + i) & (self.capacity - 1)]
        free(self.ring)
        self.ring = ring
        self.capacity = capacity
        self.head = 0
        return 0

    cdef int summon(self) except -1:
        self.is_summoned = True
        return self.reactor.enqueue(self.work, ())

    cdef Actor take_next(self):
        """Take the first actor out of the ring and return it."""
        cdef PyObject* first = self.ring[self.head]
        cdef Actor actor = <Actor>first
        self.head = (self.head + 1) & (self.capacity - 1)
        self.queued -= 1
        Py_DECREF(actor)
        return actor

    def _work(self) -> None:
        self.is_summoned = False
        try:
            self.run_some()
        finally:
            if self.queued and not self.is_summoned:
                self.summon()

    cdef int run_some(self) except -1:
        """Run slices in turn, until no actor has work or WORK_NS have passed."""
        cdef int64_t end_ns = monotonic_ns() + WORK_NS
        cdef int64_t now_ns = self.now()
        cdef Actor actor
        self.is_summoned = True     # a submitted actor runs in this loop, or is summoned below
        while self.queued:
            actor = self.take_next()
            actor.is_queued = False
            self.run_one(actor, now_ns)
            if monotonic_ns() > end_ns:
                break
        self.is_summoned = False
        return 0

    cdef int run_one(self, Actor actor, int64_t now_ns) except -1:
        cdef bint has_more
        try:
            has_more = actor.run(now_ns)
        except Exception:
            self.reactor.log_failure(f"work of {actor!r} failed")
            return 0
        if has_more:
            self.submit(actor)
        return 0

    # ---- deadlines

    cdef int set_deadline(self, Actor actor, int64_t due_ns) except -1:
        cdef int64_t before = actor.due_ns
        if due_ns == before or self.is_closed:
            return 0
        if due_ns == 0:
            return self.take_from_heap(actor)
        if actor.place < 0:
            self.add_to_heap(actor)
        actor.due_ns = due_ns
        if due_ns < before or before == 0:
            self.rise(actor.place)
        else:
            self.sink(actor.place)
        if actor.place == 0 and (self.timer is None or due_ns < self.timer_ns):
            self.arm(self.now())
        return 0

    cdef int arm(self, int64_t now_ns) except -1:
        """Set the timer for the earliest deadline, in whole milliseconds, rounded up."""
        cdef int64_t wait_ns
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.pending == 0:
            return 0
        wait_ns = actor_at(self.heap, 0).due_ns - now_ns
        wait_ns = (min(max(wait_ns, 0), <int64_t>TIMER_NS) + 999_999) // 1_000_000 * 1_000_000
        self.timer_ns = now_ns + wait_ns
        self.timer = self.reactor.loop.call_later(wait_ns / 1e9, self._timer_over)
        return 0

    def _timer_over(self) -> None:
        cdef int64_t now_ns = self.now()
        self.timer = None
        self.reactor.begin()
        try:
            self.expire_some(now_ns)
            if self.timer is None:
                self.arm(now_ns)
        finally:
            self.reactor.finish()

    cdef int expire_some(self, int64_t now_ns) except -1:
        """Expire the actors that are due, for at most WORK_NS."""
        cdef int64_t end_ns = monotonic_ns() + WORK_NS
        cdef Actor actor
        while self.pending:
            actor = actor_at(self.heap, 0)
            if actor.due_ns > now_ns or monotonic_ns() > end_ns:
                break
            self.take_from_heap(actor)
            try:
                actor.expired(now_ns)
            except Exception:
                self.reactor.log_failure(f"a deadline of {actor!r} failed")
        return 0

    # The heap: the children of index p are at 2 p + 1 and 2 p + 2.

    cdef int add_to_heap(self, Actor actor) except -1:
        cdef Py_ssize_t capacity
        cdef PyObject** heap
        if self.pending == self.heap_capacity:
            capacity = self.heap_capacity * 2 if self.heap_capacity else HEAP_MIN
            heap = <PyObject**>realloc(self.heap, capacity * sizeof(PyObject*))
            if heap == NULL:
                raise MemoryError
            self.heap = heap
            self.heap_capacity = capacity
        Py_INCREF(actor)
        self.stand(self.pending, <PyObject*>actor)
        self.pending += 1
        return 0

    cdef int take_from_heap(self, Actor actor) except -1:
        cdef Py_ssize_t place = actor.place
        if place < 0:
            return 0
        assert self.heap[place] == <PyObject*>actor, "an actor of another scheduler"
        actor.place = -1
        actor.due_ns = 0
        self.pending -= 1
        if place < self.pending:
            self.stand(place, self.heap[self.pending])
            self.rise(place)
            self.sink(place)
        Py_DECREF(actor)
        return 0

    cdef void stand(self, Py_ssize_t place, PyObject* actor) noexcept:
        self.heap[place] = actor
        (<Actor>actor).place = place

    cdef void rise(self, Py_ssize_t place) noexcept:
        """Move the actor up while its deadline is before its parent's."""
        cdef PyObject* actor = self.heap[place]
        cdef Py_ssize_t parent
        while place > 0:
            parent = (place - 1) // 2
            if not is_before(actor, self.heap[parent]):
                break
            self.stand(place, self.heap[parent])
            place = parent
        self.stand(place, actor)

    cdef void sink(self, Py_ssize_t place) noexcept:
        """Move the actor down while a child's deadline is before its own."""
        cdef PyObject* actor = self.heap[place]
        cdef Py_ssize_t child
        while True:
            child = 2 * place + 1
            if child >= self.pending:
                break
            if child + 1 < self.pending and is_before(self.heap[child + 1], self.heap[child]):
                child += 1
            if not is_before(self.heap[child], actor):
                break
            self.stand(place, self.heap[child])
            place = child
        self.stand(place, actor)

    @property
    def num_queued(self) -> int:
        """Number of actors with work waiting."""
        return self.queued

    @property
    def num_deadlines(self) -> int:
        """Number of actors with a deadline."""
        return self.pending
