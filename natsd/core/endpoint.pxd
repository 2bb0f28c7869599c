"""Declarations of endpoint.pyx."""

from libc.stdint cimport int32_t, int64_t


cdef class Settings:
    cdef public int32_t max_control_line
    cdef public int64_t max_payload
    cdef public int64_t max_pending
    cdef public int64_t max_subscriptions        # 0: no limit
    cdef public int64_t max_sub_tokens           # 0: no limit
    cdef public int64_t ping_interval_ns
    cdef public int64_t ping_max
    cdef public int64_t write_deadline_ns
    cdef public bint no_fast_producer_stall
    cdef public bint retries_writes              # the write deadline alone closes nobody


cdef class Endpoint(Pollable):
    cdef Protocol protocol               # gets the bytes; `deaf` before `attach` and after the end
    cdef readonly Framing framing        # the protocol if it is one, else None
    cdef Framing nested                  # framing inside `framing`, or None: compression in TLS
    cdef Session session                 # `nobody` before `attach` and after the end
    cdef Settings settings
    cdef object transport                # transport if the event loop serves the socket, else None
    cdef readonly object reason          # ClosedReason; None: the connection is open

    cdef bint is_blocked                 # the socket is full
    cdef bint is_congested               # over 75 % of max_pending: publishers wait
    cdef bint is_stalled                 # reading is paused
    cdef bint is_deciding                # it is paused until `resume_reading`
    cdef bint lingers                    # the close waits until the peer could read the last bytes
    cdef bint is_ending                  # the peer sent FIN; only pending bytes are still sent
    cdef bint is_direct                  # the next bytes go where the protocol wants them
    cdef Py_ssize_t read_most            # bytes of one read

    cdef char* tail                      # bytes that were read but not parsed yet
    cdef Py_ssize_t tail_bytes
    cdef Outbound out                    # pending bytes

    # Nanoseconds of the monotonic clock; 0: never.
    cdef int64_t dropped_bytes           # pending bytes that the end of the connection dropped
    cdef readonly int64_t last_activity_ns   # time of the last read
    cdef int64_t blocked_ns              # time since which the socket has taken nothing
    cdef int64_t retried_ns              # last write deadline that passed without a close
    cdef int64_t stall_ns                # duration: waits for recipients since the last read
    cdef readonly int64_t stalls         # how often publishers waited for this endpoint

    cdef char* space(self, Py_ssize_t* room) noexcept
    cdef int received(self, Py_ssize_t n) except -1
    cdef int process(self, const char* buffer, Py_ssize_t size) except -1
    cdef int keep_tail(self, const char* rest, Py_ssize_t size) except -1
    cdef int end_read(self) except -1
    cdef int pause_reading(self) except -1
    cdef int continue_reading(self) except -1

    cdef int nest(self, Framing framing) except -1
    cdef Outbound* sendable(self) except NULL
    cdef int64_t pending(self) noexcept
    cdef int drop_pending(self) except -1
    cdef int append(self, const char* data, Py_ssize_t size) except -1
    cdef bint make_room(self, Py_ssize_t need, Py_ssize_t total) except -1
    cdef int send_pending(self) except -1
    cdef int keep_pending(self) except -1
    cdef int send_to_transport(self) except -1
    cdef int block(self) except -1
    cdef int unblock(self) except -1
    cdef int deadline_passed(self, int64_t now_ns) except -1
    cdef int has_caught_up(self) except -1
    cdef int close_slow(self, object reason, str why) except -1
    cdef int peer_ended(self) except -1
    cdef int close_socket(self) except -1
    cdef int close_transport(self) except -1
