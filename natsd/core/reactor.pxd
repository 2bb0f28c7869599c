"""See reactor.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.core.outbound cimport ChunkPool
from natsd.core.parser cimport OpHandler


cdef class Counters:
    cdef public int64_t in_msgs
    cdef public int64_t in_bytes
    cdef public int64_t out_msgs
    cdef public int64_t out_bytes
    cdef public int64_t slow_consumers
    cdef public int64_t stalled_clients
    cdef public int64_t stale_connections


cdef class Endpoint(OpHandler):
    cdef Reactor reactor
    cdef int fd                # -1: closed, or served by a transport
    cdef uint32_t slot         # where it stands in the reactor's table
    cdef bint is_registered
    cdef bint is_dirty         # something is to be flushed at the end of this batch
    cdef bint is_doomed        # to be torn down at the end of this batch

    cdef int on_readable(self) except -1
    cdef int on_writable(self) except -1
    cdef int flush(self) except -1
    cdef int sweep(self, int64_t now_ns) except -1
    cdef int tear_down(self) except -1
    cdef int resume(self) except -1
    # A message went here, and it falls behind: how long is the publisher, which `waited_ns` in this
    # read already, to wait? 0: it goes on.
    cdef int64_t stall_for(self, int64_t* waited_ns) except -1


cdef class Watch(Endpoint):
    cdef object callback


cdef class Reactor:
    cdef readonly object loop
    cdef readonly Counters counters
    cdef ChunkPool pool
    cdef char* read_buffer
    cdef Py_ssize_t read_bytes
    cdef int64_t now_ns        # when the current batch began
    cdef int64_t idle_ns       # when there was last nothing to do
    cdef int64_t turn_bytes    # read in this turn
    cdef int64_t batch_bytes   # put into outbound buffers since the last flush
    cdef bint has_borrowed     # outbound buffers point into the read buffer
    cdef bint in_batch
    cdef bint is_sending       # what is being delivered comes from the server itself
    cdef Endpoint reading      # whose bytes are being parsed; None: nobody's
    cdef Endpoint congested    # where the message just delivered went, if that one falls behind
    cdef uint64_t random_state

    cdef int poll_fd
    cdef void* ready           # poller_event[POLLER_BATCH]; void: who cimports this needs no header
    cdef int ready_count
    cdef int ready_next
    cdef void** endpoints      # strong references
    cdef uint32_t endpoint_count
    cdef uint32_t endpoint_capacity
    cdef list dirty
    cdef list doomed
    cdef list stalled
    cdef dict lingering        # file descriptor -> timer that closes it
    cdef object stall_timer
    cdef int64_t stall_timer_ns  # what it is set for
    cdef object sweep_timer
    cdef object tasks          # deque of (callable, arguments) to run at the end of the turn
    cdef bint tasks_scheduled
    cdef double sweep_s
    cdef object log_failure
    cdef dict watches          # file descriptor -> Watch

    cdef int register(self, Endpoint endpoint) except -1
    cdef int forget(self, Endpoint endpoint) except -1
    cdef int want(self, Endpoint endpoint, int what) except -1
    cdef int mark_dirty(self, Endpoint endpoint) except -1
    cdef int doom(self, Endpoint endpoint) except -1
    cdef int stall(self, Endpoint endpoint, int64_t until_ns) except -1
    cdef int close_later(self, int fd) except -1
    cdef int begin(self) except -1
    cdef int end_read(self) except -1
    cdef int failed(self, Endpoint endpoint) except -1
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
