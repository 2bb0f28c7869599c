"""See connection.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.core.match_result cimport MatchResult
from natsd.core.reactor cimport Counters
from natsd.core.subscription cimport Message, Subscription
from natsd.core.sublist cimport SubList
from natsd.core.tracing cimport TracedMessage
from natsd.core.wire cimport Wire


cdef class Connection(Wire):
    cdef SubList sublist
    cdef Counters account_counters
    cdef MatchResult memo                # what the last published subject matched
    cdef dict subscriptions              # sid -> Subscription; None before the first

    cdef readonly uint64_t cid
    cdef readonly bint verbose
    cdef readonly bint pedantic
    cdef readonly bint echo
    cdef readonly bint no_responders
    cdef readonly bint trace
    cdef bint careful_in                 # a publish needs more than routing
    cdef bint careful_out                # a delivery needs more than appending
    cdef bint connect_seen
    cdef readonly bint first_pong_sent
    cdef public bint counts_parents      # a sampled `traceparent` header asks for a trace
    cdef TracedMessage traced            # the publish under way, where it is; else None
    cdef bint is_decided                 # whether that one is
    cdef int traces                      # of this read

    cdef readonly int64_t in_msgs
    cdef readonly int64_t in_bytes
    cdef readonly int64_t out_msgs
    cdef readonly int64_t out_bytes
    cdef readonly int64_t stalls
    cdef int64_t read_msgs               # published in this read
    cdef int64_t read_bytes
    cdef int64_t counted_msgs            # delivered to this client, and added to the totals
    cdef int64_t counted_bytes

    # All times are of the monotonic clock; 0: never.
    cdef readonly int64_t start_ns
    cdef readonly int64_t rtt_ns
    cdef int64_t rtt_start_ns
    cdef int64_t ping_due_ns
    cdef int64_t authenticate_by_ns
    cdef int pings_out

    cdef void count_in(self, Counters counters) noexcept
    cdef int count_delivered(self) except -1
    cdef int publish_traced(self, Message* message) except -1
    cdef bint admit(self, Message* message) except -1
    cdef MatchResult resolve(self, Message* message)
    cdef bint is_reserved(self, Message* message) except -1
    cdef int answer_no_responders(self, Message* message) except -1
    cdef int wait_for_recipient(self) except -1
    cdef int deliver_carefully(self, Subscription sub, Message* message) except -1
    cdef int append_message(self, Subscription sub, Message* message) except -1
    cdef int ping(self, int64_t now_ns) except -1
    cdef int remove_subscription(self, Subscription sub) except -1
    cdef int expect_first_ping(self, int64_t now_ns) except -1
