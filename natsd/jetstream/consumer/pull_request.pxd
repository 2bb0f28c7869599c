"""What a client asks for: see pull_request.pyx."""

from libc.stdint cimport int64_t


cdef struct PullRequest:        # durations in nanoseconds; 0: none
    int64_t batch
    int64_t max_bytes
    int64_t expires_ns
    int64_t heartbeat_ns
    int64_t min_pending
    int64_t min_ack_pending
    int64_t priority
    bint no_wait
    bint has_id


# None, or what is wrong with it.
cdef object parse_pull_request(const char* body, Py_ssize_t length, PullRequest* out)
