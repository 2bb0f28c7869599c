"""Declarations of traced_routes.pyx."""

from libc.stdint cimport int64_t

from natsd.core.routing cimport MatchResult, Sink


# Do as `distribute_traced` does for a result with subscriptions of other servers.
cdef int64_t distribute_traced_widely(
    MatchResult result, TracedMessage traced, Reactor reactor, Sink publisher
) except -1

# Do the same for a message that another server forwarded, to the queue groups that it names.
cdef int64_t distribute_traced_routed(
    MatchResult result, TracedMessage traced, Reactor reactor, const char* queues,
    Py_ssize_t length
) except -1
