"""The reactor: reads and writes every socket of a server in turns, on one event loop.

If the kernel has a readiness queue that is itself a file (epoll), the reactor serves plain
connections from it: the event loop watches that one file, and a turn of the reactor reads, parses,
routes and writes for all ready sockets, without an object or a call of the event loop per read. A
connection then needs no memory but its own fields. On other systems, and for TLS, the event loop's
transports pass bytes to the same connections (natsd/clients/transport.py).

    loop ── poll_fd readable ──> turn()
                                   ├─ begin
                                   ├─ on_readable / on_writable of each ready pollable
                                   │     └─ end_read: flush if there is much, or borrowed data
                                   └─ finish: flush the dirty, run tasks, tear down the doomed

Promise
- All connections share one read buffer; references into it are valid until `end_read`.
- No pollable is freed in the middle of a turn: a pollable that closes is doomed, and torn down in
  `finish`.
- A turn takes no longer than `TURN_NS` (plus one read); then the loop's other tasks run. Ready
  sockets are served round robin across turns.
- The reactor waits actively (`spin`) only for small messages that follow each other within
  `SPIN_NS`, and for what was said to come soon (`expect`).
- An exception of a handler is logged and closes only the connection of that handler.
- Deadlines (pings, authentication, blocked writes) are fields of the pollables; one periodic sweep
  checks all of them.
"""

import collections

from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport close

from cpython.ref cimport Py_DECREF, Py_INCREF

from natsd.core.poller cimport (
    POLLER_BATCH, POLLER_HANGUP, POLLER_READ, POLLER_WRITE, poller_add, poller_change, poller_event,
    poller_open, poller_ready, poller_remove, poller_supported,
)

cdef enum:
    READ_BYTES = 256 * 1024    # minimum size of the read buffer
    TURN_NS = 2_000_000
    SPIN_NS = 30_000
    EXPECTED_NS = 200_000      # for so long what is expected is polled for, before the loop sleeps
    EXPECTING_BYTES = 16384    # if a turn reads more, there is enough to do
    RESTS_MAX = 256
    SPIN_BYTES = 4096          # if a turn reads more, it does not spin for small messages
    BATCH_FLUSH_BYTES = 128 * 1024  # appended in a read; above: recipients are flushed at its end
    TASKS_NS = 2_000_000       # time for queued tasks in one turn
    TASKS_MAX = 8192           # while more tasks are queued, nothing is read

LINGER_S = 0.5                 # time that a peer has to read the last bytes before the close


cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "natsd/core/allocator.h" nogil:
    void natsd_tune_allocator()


cdef int64_t monotonic_ns() noexcept nogil:
    """Return the monotonic clock in nanoseconds."""
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec


cdef inline poller_event* events_of(Reactor reactor) noexcept nogil:
    return <poller_event*>reactor.ready


def has_poller() -> bool:
    """Return whether plain sockets can be served without the event loop's transports."""
    return bool(poller_supported())


def tune_allocator() -> None:
    """Make the C library keep some freed memory and return large buffers (see allocator.h)."""
    natsd_tune_allocator()


cdef class TrafficStats:
    """Totals of a server or an account: messages, bytes of headers and payload, slow connections.

    `in_` counts messages that clients publish or other servers forward, `out_` messages that are
    delivered to clients or forwarded to other servers.
    """


cdef class Recipient:
    """What publishers may have to wait for: a connection, or a stream that is not durable yet."""

    cdef int64_t stall_for(self, int64_t* waited_ns) except -1:
        """Return how many ns a publisher waits for this congested recipient (see reactor.pxd)."""
        return 0


cdef class Pollable(Recipient):
    """A file descriptor that a reactor serves; it knows nothing of bytes and protocols."""

    def __cinit__(self):
        self.fd = -1

    cdef int on_readable(self) except -1:
        """Read once; the poller reported the descriptor as readable or hung up."""
        return 0

    cdef int on_writable(self) except -1:
        """Send pending bytes; the poller reported the descriptor as writable."""
        return 0

    cdef int flush(self) except -1:
        """Send the pending bytes, as far as the system takes them."""
        return 0

    cdef int sweep(self, int64_t now_ns) except -1:
        """Check the deadlines."""
        return 0

    cdef int resume(self) except -1:
        """Continue to read after a stall."""
        return 0

    cdef int tear_down(self) except -1:
        """Close the descriptor and release everything, at the end of a turn."""
        return 0

    def fail(self) -> None:
        """Close it because one of its handlers raised."""


cdef class Watch(Pollable):
    """A file descriptor of the server itself: `callback` is called while it is readable.

    It stays registered if the callback raises.
    """

    def __init__(self, Reactor reactor, int fd, callback):
        self.reactor = reactor
        self.fd = fd
        self.callback = callback

    cdef int on_readable(self) except -1:
        self.callback()
        return 0


cdef class Reactor:
    """Serves pollables on `loop`. `log_failure(text)` is called while an exception is handled.

    Raises OSError if no epoll descriptor can be opened.
    """

    def __cinit__(self):
        self.poll_fd = -1
        self.ready = calloc(POLLER_BATCH, sizeof(poller_event))
        if self.ready == NULL:
            raise MemoryError

    def __init__(
        self, loop, log_failure, Py_ssize_t control_line_bytes_max=4096, double sweep_s=0.1,
        int64_t pending_bytes_max=INT64_MAX,
    ):
        natsd_tune_allocator()
        self.loop = loop
        self.log_failure = log_failure
        self.counters = TrafficStats()
        self.pool = ChunkPool()
        self.pool.pending_bytes_max = pending_bytes_max
        self.dirty = []
        self.doomed = []
        self.stalled = []
        self.lingering = {}
        self.watches = {}
        self.tasks = collections.deque()
        self.sweep_s = sweep_s
        self.random_state = <uint64_t>monotonic_ns() | 1
        self.read_bytes = max(READ_BYTES, 4 * control_line_bytes_max)
        self.read_buffer = <char*>malloc(self.read_bytes + 64)
        if self.read_buffer == NULL:
            raise MemoryError
        if poller_supported():
            self.poll_fd = poller_open()
            if self.poll_fd < 0:
                raise OSError("cannot open an epoll descriptor: raise the limit of open files")
            loop.add_reader(self.poll_fd, self.turn)
        self.sweep_timer = loop.call_later(sweep_s, self._sweep)

    def __dealloc__(self):
        free(self.ready)
        free(self.read_buffer)
        free(self.pollables)
        if self.poll_fd >= 0:
            close(self.poll_fd)

    def close(self) -> None:
        """Stop serving; the caller must have closed the pollables before."""
        self.finish()
        for fd in list(self.watches):
            self.remove_reader(fd)
        for fd in list(self.lingering):
            self.close_now(fd)
        if self.sweep_timer is not None:
            self.sweep_timer.cancel()
        if self.stall_timer is not None:
            self.stall_timer.cancel()
        self.sweep_timer = self.stall_timer = None
        self.stalled.clear()
        self.tasks.clear()
        if self.poll_fd >= 0:
            self.loop.remove_reader(self.poll_fd)
            close(self.poll_fd)
            self.poll_fd = -1

    @property
    def pending_bytes(self) -> int:
        """Bytes of memory that the pending bytes of all connections take."""
        return self.pool.pending_bytes

    @property
    def pending_bytes_max(self) -> int:
        """Limit on `pending_bytes`; above it, connections are closed as slow consumers."""
        return self.pool.pending_bytes_max

    @pending_bytes_max.setter
    def pending_bytes_max(self, int64_t most):
        self.pool.pending_bytes_max = most

    # ---- pollables

    cdef int register(self, Pollable pollable) except -1:
        """Serve a pollable from now on; raises OSError if the system cannot watch its socket."""
        cdef void** grown
        if self.pollable_count == self.pollable_capacity:
            grown = <void**>realloc(
                self.pollables, max(64, 2 * self.pollable_capacity) * sizeof(void*)
            )
            if grown == NULL:
                raise MemoryError
            self.pollables = grown
            self.pollable_capacity = max(64, 2 * self.pollable_capacity)
        if pollable.fd >= 0:
            if poller_add(self.poll_fd, pollable.fd, POLLER_READ, <void*>pollable) < 0:
                raise OSError("the socket cannot be watched")
        pollable.slot = self.pollable_count
        self.pollables[self.pollable_count] = <void*>pollable
        self.pollable_count += 1
        pollable.is_registered = True
        Py_INCREF(pollable)
        return 0

    cdef int forget(self, Pollable pollable) except -1:
        """Stop serving a pollable; its unserved events of this turn are dropped."""
        cdef int i
        cdef Pollable last
        if not pollable.is_registered:
            return 0
        pollable.is_registered = False
        if pollable.fd >= 0:
            poller_remove(self.poll_fd, pollable.fd)
        for i in range(self.ready_next, self.ready_count):
            if events_of(self)[i].data == <void*>pollable:
                events_of(self)[i].data = NULL
        self.pollable_count -= 1
        last = <Pollable>self.pollables[self.pollable_count]
        self.pollables[pollable.slot] = <void*>last
        last.slot = pollable.slot
        Py_DECREF(pollable)
        return 0

    cdef int want(self, Pollable pollable, int what) except -1:
        """Set the events to watch for: a combination of POLLER_READ and POLLER_WRITE."""
        if pollable.fd >= 0 and pollable.is_registered:
            poller_change(self.poll_fd, pollable.fd, what, <void*>pollable)
        return 0

    cdef int mark_dirty(self, Pollable pollable) except -1:
        """Have the pollable flushed at the end of the turn, or soon."""
        pollable.is_dirty = True
        self.dirty.append(pollable)
        if not self.in_batch:
            self.schedule()
        return 0

    cdef int doom(self, Pollable pollable) except -1:
        """Have the pollable torn down at the end of the turn, or soon."""
        if not pollable.is_doomed:
            pollable.is_doomed = True
            self.doomed.append(pollable)
            if not self.in_batch:
                self.schedule()
        return 0

    cdef int close_later(self, int fd) except -1:
        """Close a socket after LINGER_S, so that the peer can read the last bytes."""
        self.lingering[fd] = self.loop.call_later(LINGER_S, self.close_now, fd)
        return 0

    def close_now(self, int fd) -> None:
        """Close a lingering socket at once."""
        self.lingering.pop(fd).cancel()
        close(fd)

    def add_reader(self, int fd, callback) -> None:
        """Call `callback()` whenever the descriptor is readable, like the loop's `add_reader`.

        With a poller the callback runs within a turn: messages that it causes are sent in the same
        turn, and a turn that spins notices the descriptor.
        """
        cdef Watch watch
        if self.poll_fd < 0:
            self.loop.add_reader(fd, callback)
            return
        watch = Watch(self, fd, callback)
        self.register(watch)
        self.watches[fd] = watch

    def remove_reader(self, int fd) -> None:
        """Stop the callbacks of `add_reader` for this descriptor."""
        cdef Watch watch = self.watches.pop(fd, None)
        if watch is not None:
            self.forget(watch)
        elif not self.loop.is_closed():
            self.loop.remove_reader(fd)

    # ---- a turn

    def turn(self) -> None:
        """Serve the ready sockets, for at most TURN_NS plus one read."""
        cdef int64_t end_ns
        cdef bint is_lively
        self.begin()
        end_ns = self.now_ns + TURN_NS
        is_lively = self.now_ns - self.idle_ns < SPIN_NS
        while True:
            self.turn_bytes = 0
            self.serve_ready(end_ns)
            self.finish()
            self.idle_ns = monotonic_ns()
            if not is_lively or self.turn_bytes > SPIN_BYTES or self.idle_ns > end_ns:
                break
            if self.ready_next < self.ready_count or not self.spin():
                break
            self.begin()

    def serve_waiting(self) -> bool:
        """Serve the sockets that are ready, if any are; return whether there were any.

        For long work in the loop's thread: a look takes a tenth of a round of the loop.
        """
        if self.poll_fd < 0 or self.in_batch:
            return False
        if self.ready_next == self.ready_count:
            self.ready_next = 0
            self.ready_count = max(0, poller_ready(self.poll_fd, events_of(self), POLLER_BATCH))
            if self.ready_count == 0:
                return False
        self.begin()
        self.serve_ready(self.now_ns + TURN_NS)
        self.finish()
        return True

    cdef int serve_ready(self, int64_t end_ns) except -1:
        """Serve ready sockets until none is ready, `end_ns` is over, or too many tasks wait."""
        cdef poller_event* ready = events_of(self)
        while len(self.tasks) < TASKS_MAX:
            if self.ready_next == self.ready_count:
                self.ready_next = 0
                self.ready_count = max(0, poller_ready(self.poll_fd, ready, POLLER_BATCH))
                if self.ready_count == 0:
                    break
            self.serve(ready[self.ready_next].data, ready[self.ready_next].what)
            if self.ready_next == self.ready_count and self.ready_count < POLLER_BATCH:
                break
            self.now_ns = monotonic_ns()
            if self.now_ns > end_ns:
                break
        return 0

    # ---- expected events

    def expect(self) -> None:
        """Poll for the next EXPECTED_NS: the end of a sync, or an answer, is about to come.

        The loop's other tasks run in between. To sleep and be woken takes some 50 us, and several
        times as long on a virtual machine whose processor has gone to sleep. Where nothing comes in
        that time, this is tried ever more rarely.
        """
        if self.poll_fd < 0 or self.turn_bytes > EXPECTING_BYTES:
            self.expected_until_ns = 0
            return
        if self.rests_left > 0:
            self.rests_left -= 1
            return
        self.expected_until_ns = monotonic_ns() + EXPECTED_NS
        if not self.is_expecting:
            self.is_expecting, self.has_come = True, False
            self.loop.call_soon(self._poll_for_expected)

    def _poll_for_expected(self) -> None:
        """Poll for a moment; then let the loop's other tasks run, and go on if nothing has come."""
        self.idle_ns = monotonic_ns()
        if self.poll_fd < 0 or self.idle_ns > self.expected_until_ns:
            self.is_expecting = False
            self.rests = 0 if self.has_come else min(2 * self.rests + 1, RESTS_MAX)
            self.rests_left = self.rests
            return
        if self.ready_next < self.ready_count or self.spin():
            self.has_come = True
            self.turn()
        self.loop.call_soon(self._poll_for_expected)

    cdef bint spin(self) noexcept:
        """Poll for up to SPIN_NS for the next event; return whether there is one.

        A reply follows its request after some 10 us, and to sleep and be woken takes longer than
        that. The GIL is released while polling.
        """
        cdef int64_t end_ns = self.idle_ns + SPIN_NS
        cdef int count = 0
        with nogil:
            while count == 0 and monotonic_ns() < end_ns:
                sched_yield()
                count = poller_ready(self.poll_fd, events_of(self), POLLER_BATCH)
        self.ready_next = 0
        self.ready_count = max(0, count)
        return self.ready_count > 0

    cdef int serve(self, void* data, int what) except -1:
        """Serve the next event: the pollable `data` (NULL: it is gone) is ready for `what`."""
        cdef Pollable pollable
        self.ready_next += 1
        if data == NULL:
            return 0
        pollable = <Pollable>data
        try:
            if what & POLLER_WRITE:
                pollable.on_writable()
            if what & (POLLER_READ | POLLER_HANGUP) and not pollable.is_doomed:
                pollable.on_readable()
        except Exception:
            self.failed(pollable)
        return 0

    cdef int failed(self, Pollable pollable) except -1:
        """Log the current exception of a pollable's handler and close the pollable."""
        self.log_failure("a connection is closed because its handler failed")
        pollable.fail()
        if self.has_borrowed:  # the read ended early: data for others is still in the read buffer
            self.end_read()
        return 0

    cdef int begin(self) except -1:
        """Begin a batch of work, which `finish` ends."""
        self.in_batch = True
        self.now_ns = monotonic_ns()
        return 0

    cdef int end_read(self) except -1:
        """End a read whose bytes are parsed: the read buffer may be overwritten afterwards."""
        if self.batch_bytes > BATCH_FLUSH_BYTES or self.has_borrowed:
            self.flush_dirty()
            self.pool.forget_promoted()
            self.has_borrowed = False
        return 0

    cdef int flush_dirty(self) except -1:
        """Flush all dirty pollables."""
        cdef Pollable pollable
        cdef list dirty = self.dirty
        if dirty:
            self.dirty = []
            for pollable in dirty:
                pollable.is_dirty = False
                try:
                    pollable.flush()
                except Exception:
                    self.failed(pollable)
        self.batch_bytes = 0
        return 0

    def flush(self) -> None:
        """Send what is queued for sockets now, and not only at the end of the turn."""
        self.flush_dirty()

    cdef int finish(self) except -1:
        """End a turn: flush, run queued tasks for at most TASKS_NS, tear down what is doomed.

        Tasks that are left run soon, in a later turn.
        """
        cdef int64_t end_ns = monotonic_ns() + TASKS_NS
        self.in_batch = True
        self.flush_dirty()
        self.tear_down_doomed()
        while self.tasks and monotonic_ns() < end_ns:
            self.run_task()
            if not self.tasks:
                self.flush_dirty()
                self.tear_down_doomed()
        self.flush_dirty()
        self.tear_down_doomed()
        self.pool.forget_promoted()
        self.in_batch = False
        if self.tasks:
            self.schedule()
        return 0

    cdef int tear_down_doomed(self) except -1:
        """Tear down all that are doomed; an exception is logged."""
        cdef Pollable pollable
        while self.doomed:
            pollable = self.doomed.pop()
            try:
                pollable.tear_down()
            except Exception:
                self.log_failure("a connection could not be torn down cleanly")
        return 0

    cdef int run_task(self) except -1:
        """Run the oldest queued task; an exception is logged."""
        call, arguments = self.tasks.popleft()
        try:
            call(*arguments)
        except Exception:
            self.log_failure("an internal subscription's handler failed")
        return 0

    cdef int schedule(self) except -1:
        """Have `finish` called soon, for work that was added outside of a turn."""
        if not self.tasks_scheduled:
            self.tasks_scheduled = True
            self.loop.call_soon(self._run_scheduled)
        return 0

    def _run_scheduled(self) -> None:
        """Do the work that was added outside of a turn."""
        self.tasks_scheduled = False
        self.begin()
        self.finish()

    cdef int enqueue(self, object call, tuple arguments) except -1:
        """Call `call(*arguments)` at the end of this turn, or soon."""
        self.tasks.append((call, arguments))
        if not self.in_batch:
            self.schedule()
        return 0

    def soon(self, call, *arguments) -> None:
        """Call `call(*arguments)` at the end of this turn, or soon, after earlier queued calls.

        This is earlier than the loop's `call_soon`, because a turn may spin for the next messages.
        """
        self.enqueue(call, arguments)

    # ---- stalls and deadlines

    cdef int stall(self, Pollable pollable, int64_t until_ns) except -1:
        """Resume `pollable` at the monotonic time `until_ns`, or when a congested one drains."""
        self.stalled.append((until_ns, pollable))
        if self.stall_timer is None or until_ns < self.stall_timer_ns:
            if self.stall_timer is not None:
                self.stall_timer.cancel()
            self.stall_timer_ns = until_ns
            self.stall_timer = self.loop.call_later(
                max(0, until_ns - monotonic_ns()) / 1e9, self._stall_over
            )
        return 0

    def _stall_over(self) -> None:
        """Resume the pollables whose wait ends now or within 0.5 ms."""
        self.stall_timer = None
        self.begin()
        self.resume_stalled(self.now_ns + 500_000)
        self.finish()

    cdef int resume_stalled(self, int64_t now_ns) except -1:
        """Resume the stalled pollables whose wait ends by `now_ns`."""
        cdef Pollable pollable
        cdef list stalled = self.stalled
        self.stalled = []
        for until_ns, pollable in stalled:
            if pollable.is_doomed:
                continue
            if until_ns > now_ns:
                self.stall(pollable, until_ns)
                continue
            try:
                pollable.resume()
            except Exception:
                self.failed(pollable)
        return 0

    cdef int drained(self) except -1:
        """Resume all stalled pollables soon, because a congested connection has room again."""
        if self.stalled:
            self.enqueue(self._resume_all, ())
        return 0

    def _resume_all(self) -> None:
        """Resume all stalled pollables, even if their wait is not over."""
        self.resume_stalled(1 << 62)

    def _sweep(self) -> None:
        """Check the deadlines of all pollables, and schedule the next sweep."""
        cdef uint32_t i
        cdef Pollable pollable
        self.sweep_timer = self.loop.call_later(self.sweep_s, self._sweep)
        self.begin()
        for i in range(self.pollable_count):
            pollable = <Pollable>self.pollables[i]
            try:
                pollable.sweep(self.now_ns)
            except Exception:
                self.failed(pollable)
        self.finish()

    cdef uint32_t random(self, uint32_t below) noexcept:
        """Return a pseudo-random number below `below` (xorshift64*).

        It picks queue group members and need not be secret.
        """
        cdef uint64_t x = self.random_state
        x ^= x >> 12
        x ^= x << 25
        x ^= x >> 27
        self.random_state = x
        return <uint32_t>(((x * <uint64_t>2685821657736338717) >> 32) * below >> 32)
