"""Declarations of reactor.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef class TrafficStats:
    cdef public int64_t in_msgs
    cdef public int64_t in_bytes
    cdef public int64_t out_msgs
    cdef public int64_t out_bytes
    cdef public int64_t slow_consumers
    cdef public int64_t stalled_clients
    cdef public int64_t stale_connections

    # The part of these that routes have.
    cdef public int64_t in_route_msgs
    cdef public int64_t in_route_bytes
    cdef public int64_t out_route_msgs
    cdef public int64_t out_route_bytes
    cdef public int64_t slow_routes
    cdef public int64_t stale_routes


cdef class Recipient:
    # Return how many ns a publisher waits after it sent a message to this recipient, which is
    # congested; 0: no wait. `waited_ns` is the time that the publisher has already waited in this
    # read.
    cdef int64_t stall_for(self, int64_t* waited_ns) except -1


cdef class Pollable(Recipient):
    cdef Reactor reactor
    cdef int fd                # -1: closed, or served by a transport
    cdef uint32_t slot         # index in the reactor's table `pollables`
    cdef bint is_registered
    cdef bint is_dirty         # in the reactor's `dirty`: flushed at the end of this batch
    cdef bint is_doomed        # in the reactor's `doomed`: torn down at the end of this batch

    cdef int on_readable(self) except -1
    cdef int on_writable(self) except -1
    cdef int flush(self) except -1
    cdef int sweep(self, int64_t now_ns) except -1
    cdef int tear_down(self) except -1
    cdef int resume(self) except -1


cdef class Watch(Pollable):
    cdef object callback


cdef class Reactor:
    cdef readonly object loop
    cdef readonly TrafficStats counters
    cdef ChunkPool pool
    cdef char* read_buffer
    cdef Py_ssize_t read_bytes
    cdef int64_t now_ns        # monotonic time at which the current batch began
    cdef int64_t idle_ns       # monotonic time at which the reactor last had nothing to do
    cdef int64_t turn_bytes    # bytes read in this turn
    cdef int64_t batch_bytes   # bytes put into outbound buffers since the last flush
    cdef bint has_borrowed     # outbound buffers point into the read buffer
    cdef bint in_batch         # between `begin` and `finish`: work left is done in `finish`
    cdef bint is_sending       # a message of the server itself is being delivered: no other may be
    cdef Recipient congested   # congested recipient of the last delivered message; None: none
    cdef uint64_t random_state

    cdef int poll_fd           # the readiness queue; -1: there is none
    cdef void* ready           # poller_event[POLLER_BATCH]; void*, so that cimports need no header
    cdef int ready_count       # events in `ready`
    cdef int ready_next        # next event to serve
    cdef void** pollables      # registered ones; the table owns a reference to each
    cdef uint32_t pollable_count
    cdef uint32_t pollable_capacity
    cdef list dirty            # pollables to flush
    cdef list doomed           # pollables to tear down
    cdef list stalled          # (monotonic ns of the end, pollable) of publishers that wait
    cdef dict lingering        # file descriptor -> timer that closes it
    cdef object stall_timer
    cdef int64_t stall_timer_ns  # monotonic time for which `stall_timer` is set
    cdef object sweep_timer
    cdef object tasks          # deque of (callable, arguments) to run at the end of the turn
    cdef bint is_expecting     # the loop will call `_poll_for_expected`
    cdef bint has_come         # an event came while one was expected
    cdef int64_t expected_until_ns
    cdef int rests             # expectations in a row that are slept for, after those in vain
    cdef int rests_left
    cdef bint tasks_scheduled  # the loop will call `_run_scheduled`
    cdef public double sweep_s  # seconds between two sweeps
    cdef object log_failure    # called with a text while an exception is handled
    cdef dict watches          # file descriptor -> Watch

    cdef int register(self, Pollable pollable) except -1
    cdef int forget(self, Pollable pollable) except -1
    cdef int want(self, Pollable pollable, int what) except -1
    cdef int mark_dirty(self, Pollable pollable) except -1
    cdef int doom(self, Pollable pollable) except -1
    cdef int stall(self, Pollable pollable, int64_t until_ns) except -1
    cdef int close_later(self, int fd) except -1
    cdef int begin(self) except -1
    cdef int end_read(self) except -1
    cdef int failed(self, Pollable pollable) except -1
    cdef int flush_dirty(self) except -1
    cdef int serve_ready(self, int64_t end_ns) except -1
    cdef bint spin(self) noexcept
    cdef int serve(self, void* data, int what) except -1
    cdef int schedule(self) except -1
    cdef int run_task(self) except -1
    cdef int tear_down_doomed(self) except -1
    cdef int resume_stalled(self, int64_t now_ns) except -1
    cdef int drained(self) except -1
    cdef int finish(self) except -1
    cdef uint32_t random(self, uint32_t below) noexcept
    cdef int enqueue(self, object call, tuple arguments) except -1


cdef int64_t monotonic_ns() noexcept nogil
