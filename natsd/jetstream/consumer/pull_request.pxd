"""A pull request as a client sends it; see pull_request.pyx."""

from libc.stdint cimport int64_t


cdef enum:
    GROUP_BYTES = 16            # longest name of a priority group
    PIN_BYTES = 22              # length of a pinned client's id


cdef struct PullRequest:        # durations in nanoseconds; 0: none
    int64_t batch
    int64_t max_bytes
    int64_t expires_ns
    int64_t heartbeat_ns
    int64_t min_pending
    int64_t min_ack_pending
    int64_t priority
    bint no_wait
    bint is_object
    # The full lengths; only the first bytes of a text that is too long, and so names nothing, are
    # kept.
    Py_ssize_t group_len
    Py_ssize_t id_len
    char[GROUP_BYTES] group
    char[PIN_BYTES] id


# Parse a request. Return None, or what is wrong with it.
cdef object parse_pull_request(const char* body, Py_ssize_t length, PullRequest* out)
