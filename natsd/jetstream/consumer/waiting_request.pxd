"""A pull request that waits; pull.pyx lists them, priority_groups.pyx chooses among them."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t


cdef struct Request:            # its reply subject follows it in memory
    Request* next
    PyObject* to                # MatchResult, owned; NULL: not looked up
    uint64_t slice              # slice in which `to` was looked up
    int64_t left                # messages it still wants; below 1: one
    int64_t bytes_left          # bytes of messages it may still get; 0: no limit
    int64_t served
    int64_t expires_ns          # 0: never
    int64_t heartbeat_ns        # 0: none
    int64_t heartbeat_due_ns
    bint no_wait
    Py_ssize_t reply_len
    const char* reply

    # Fields for priority groups; the list is in the order of `rank`, which is 0 without them.
    int rank
    int priority                # 0 to 9; 10: it named none
    int group                   # index among the group names; -1: it named none
    uint64_t pin                # number of the pin it names or has; 0: none
    int64_t min_pending         # 0: none
    int64_t min_ack_pending
