"""See connection.pyx."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from natsd.core.outbound cimport Outbound
from natsd.core.parser cimport Args
from natsd.core.reactor cimport Counters, Endpoint
from natsd.core.subscription cimport Message, Subscription
from natsd.core.match_result cimport MatchResult
from natsd.core.sublist cimport SubList


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
    cdef public bint headers


cdef class Connection(Endpoint):
    cdef Settings settings
    cdef SubList sublist
    cdef Counters account_counters
    cdef MatchResult memo                # what the last published subject matched
    cdef dict subscriptions              # sid -> Subscription; None before the first
    cdef object transport                # where the event loop serves the socket, else None
    cdef public object reason            # why it was closed; None while it is open

    cdef readonly uint64_t cid
    cdef readonly bint verbose
    cdef readonly bint pedantic
    cdef readonly bint echo
    cdef readonly bint no_responders
    cdef readonly bint trace
    cdef bint careful_in                 # a publish needs more than routing
    cdef bint careful_out                # a delivery needs more than appending
    cdef bint is_blocked                 # the socket takes no more for now
    cdef bint is_congested               # over 75 % of max_pending: publishers wait
    cdef bint is_stalled                 # as a publisher: reading is paused
    cdef bint lingers                    # close gently: an -ERR is on its way
    cdef bint connect_seen
    cdef bint first_pong_sent

    cdef char* tail                      # bytes read but not parsed yet
    cdef Py_ssize_t tail_bytes
    cdef Outbound out

    cdef readonly int64_t in_msgs
    cdef readonly int64_t in_bytes
    cdef readonly int64_t out_msgs
    cdef readonly int64_t out_bytes
    cdef readonly int64_t stalls
    cdef int64_t fan_msgs                # delivered to others in this read
    cdef int64_t fan_bytes
    cdef int64_t stall_ns                # spent waiting since the last read

    # All times are of the monotonic clock; 0: never.
    cdef readonly int64_t start_ns
    cdef readonly int64_t last_activity_ns
    cdef readonly int64_t rtt_ns
    cdef int64_t rtt_start_ns
    cdef int64_t ping_due_ns
    cdef int64_t blocked_ns
    cdef int64_t authenticate_by_ns
    cdef int pings_out

    cdef int process(self, char* buffer, Py_ssize_t size) except -1
    cdef int keep_tail(self, const char* rest, Py_ssize_t size) except -1
    cdef int settle(self, int64_t msgs, int64_t size) except -1
    cdef bint admit(self, Message* message) except -1
    cdef MatchResult resolve(self, Message* message)
    cdef bint is_reserved(self, Message* message) except -1
    cdef int answer_no_responders(self, Message* message) except -1
    cdef int wait_for_recipient(self) except -1
    cdef int deliver_carefully(self, Subscription sub, Message* message) except -1
    cdef int append_message(self, Subscription sub, Message* message) except -1
    cdef int append(self, const char* data, Py_ssize_t size) except -1
    cdef bint make_room(self, Py_ssize_t need, Py_ssize_t total) except -1
    cdef int send_pending(self) except -1
    cdef int send_to_transport(self) except -1
    cdef int block(self) except -1
    cdef int unblock(self) except -1
    cdef int close_slow(self, object reason) except -1
    cdef int ping(self, int64_t now_ns) except -1
    cdef int remove_subscription(self, Subscription sub) except -1
    cdef int pause_reading(self) except -1
    cdef int continue_reading(self) except -1
    cdef int expect_first_ping(self, int64_t now_ns) except -1
