"""Declarations of client_session.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.core.routing cimport MatchResult, Message, SubjectMappings, SubList, Subscription


cdef class ClientSession(OpSession):
    cdef ClientProtocol protocol
    cdef SubList sublist
    cdef TrafficStats account_counters
    cdef MatchResult memo                # match result of the last published subject; None: none
    cdef dict subscriptions              # sid -> Subscription; None before the first subscription

    cdef readonly uint64_t cid
    cdef readonly bint verbose
    cdef readonly bint pedantic
    cdef readonly bint echo
    cdef bint headers                    # it understands headers
    cdef readonly bint no_responders
    cdef bint slow_publish_path         # a publish needs more work than routing (see `admit`)
    cdef bint slow_delivery_path                # a delivery needs more than an append
    cdef SessionPermissions permissions  # None: the client may do everything
    cdef int64_t own_subscriptions_max   # limits of this session; INT64_MAX: none
    cdef int64_t own_payload_max
    cdef int64_t subscriptions_max       # the limit that holds
    cdef SubjectMappings mappings        # of its account; None: there are none
    cdef bytes mapped                    # what the last publish was mapped to, if it was
    cdef bint connect_seen
    cdef readonly bint first_pong_sent
    cdef public bint counts_parents      # a sampled `traceparent` header requests a trace
    cdef TracedMessage traced            # the current publish if it is traced, else None
    cdef bint is_decided                 # `begin_trace` was already called for the current publish
    cdef int traces                      # publishes in this read that may have requested a trace

    cdef int64_t read_msgs               # messages published in this read, not yet in `in_msgs`
    cdef int64_t read_bytes              # bytes of these messages
    cdef int64_t counted_msgs            # part of `out_msgs` that the totals already include
    cdef int64_t counted_bytes           # part of `out_bytes` that the totals already include

    cdef int64_t expires_ns              # when the authentication expires; 0: never

    cdef void count_in(self, TrafficStats counters) noexcept
    cdef int count_delivered(self) except -1
    cdef int publish_traced(self, Message* message) except -1
    cdef int apply_limits(self) except -1
    cdef MatchResult admit(self, Message* message)
    cdef bint may_receive(self, Subscription sub, Message* message) except -1
    cdef MatchResult resolve(self, Message* message)
    cdef int wait_for_recipient(self) except -1
    cdef int deliver_carefully(self, Subscription sub, Message* message) except -1
    cdef int append_message(self, Subscription sub, Message* message) except -1
    cdef int ping(self, int64_t now_ns) except -1
    cdef int remove_subscription(self, Subscription sub) except -1
    cdef int expect_first_ping(self, int64_t now_ns) except -1
