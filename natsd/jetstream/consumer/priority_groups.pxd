"""Priority groups of a pull consumer: see priority_groups.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.core.outlet cimport Outlet
from natsd.jetstream.consumer.pull_request cimport PullRequest
from natsd.jetstream.consumer.waiting_request cimport Request


cdef enum Policy:               # settings.PriorityPolicy
    NO_POLICY = 0
    OVERFLOW = 1
    PINNED_CLIENT = 2
    PRIORITIZED = 3

cdef enum Turn:                 # what a request gets of the message that is to be sent
    SERVED = 0                  # the message
    PASSED_OVER = 1             # it waits on
    ALL_PASSED_OVER = 2         # and so do all behind it
    ENDED = 3                   # nothing more: it names a pin that is no more


cdef class PriorityGroups:
    cdef readonly int policy
    cdef Outlet outlet
    cdef object events
    cdef tuple names            # bytes
    cdef int64_t timeout_ns
    cdef int64_t due_ns         # when the pin ends; 0: nobody is pinned
    cdef readonly bytes pin_id  # empty: nobody is pinned
    cdef readonly int64_t pinned_ns
    cdef bytes pin_line         # the header of what the pinned client gets
    cdef int pinned_group       # place among the names
    cdef uint64_t pin           # number of the pin; 0: nobody is pinned
    cdef uint64_t pins          # how many there were
    cdef int64_t passed_over    # requests, of which `looks` has not told

    cdef int configure(self, settings) except -1
    # What is wrong with a request that came in, or None. The pinned client's time begins anew.
    cdef str refusal(self, PullRequest* request, int64_t now_ns)
    # Note of a request what decides about its turns.
    cdef int enroll(self, PullRequest* request, Request* added) except -1
    # Where it stands in the list.
    cdef int rank_of(self, Request* request) noexcept
    cdef Turn turn(self, Request* request, int64_t pending, int64_t ack_pending) noexcept
    # What passing requests over has cost since, in messages.
    cdef int looks(self) noexcept
    # It gets the message: it may become the pinned one.
    cdef int choose(self, Request* request, int64_t now_ns) except -1
    # The pin ends if its time is over.
    cdef int expire(self, int64_t now_ns) except -1
    cdef int unpin(self, str group, str reason) except -1
    # It waited under another policy: what it named as a pin is none of this one's.
    cdef int adopt(self, Request* request) noexcept
    cdef int group_of(self, PullRequest* request) noexcept
    cdef str name_of(self, int group)
    cdef int pin_to(self, Request* request, int64_t now_ns) except -1
