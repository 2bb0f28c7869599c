"""The priority groups of a pull consumer; see priority_groups.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.core.network cimport AccountPublisher


cdef enum Policy:               # the values of settings.PriorityPolicyCode
    NO_POLICY = 0
    OVERFLOW = 1
    PINNED_CLIENT = 2
    PRIORITIZED = 3

cdef enum Turn:                 # what happens to a request at the next message
    SERVED = 0                  # it gets the message
    PASSED_OVER = 1             # it waits on
    ALL_PASSED_OVER = 2         # it and all later ones wait on
    ENDED = 3                   # it ends: it names a pin that has ended


cdef class PriorityGroups:
    cdef readonly int policy
    cdef AccountPublisher publisher
    cdef object events
    cdef tuple names            # names of the groups, as bytes
    cdef int64_t timeout_ns
    cdef int64_t due_ns         # when the pin ends; 0: no client is pinned
    cdef readonly bytes pin_id  # empty: no client is pinned
    cdef readonly int64_t pinned_ns
    cdef bytes pin_line         # the Nats-Pin-Id header for the pinned client
    cdef int pinned_group       # index among the names
    cdef uint64_t pin           # number of the pin; 0: no client is pinned
    cdef uint64_t pins          # number of all pins so far
    cdef int64_t passed_over    # requests passed over since the last `looks`

    cdef int configure(self, settings) except -1
    # Return the error of a new request, or None. A request of the pinned client renews the pin.
    cdef str refusal(self, PullRequest* request, int64_t now_ns)
    # Copy the fields of a request that decide when it is served.
    cdef int enroll(self, PullRequest* request, Request* added) except -1
    # Return its rank in the order of the list.
    cdef int rank_of(self, Request* request) noexcept
    cdef Turn turn(self, Request* request, int64_t pending, int64_t ack_pending) noexcept
    # Return the cost of the requests passed over since the last call, in messages.
    cdef int looks(self) noexcept
    # Note that the request gets the message, by which its client may become the pinned one.
    cdef int choose(self, Request* request, int64_t now_ns) except -1
    # End the pin if its time is over.
    cdef int expire(self, int64_t now_ns) except -1
    cdef int unpin(self, str group, str reason) except -1
    # Take over a request from another policy; a pin that it named is none of this one.
    cdef int adopt(self, Request* request) noexcept
    cdef int group_of(self, PullRequest* request) noexcept
    cdef str name_of(self, int group)
    cdef int pin_to(self, Request* request, int64_t now_ns) except -1
