"""A pull request that waits: pull.pyx keeps them in a list, priority_groups.pyx says whose turn it
is."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t


cdef struct Request:            # followed in memory by its reply subject
    Request* next
    PyObject* to                # MatchResult, owned; NULL: not looked up
    uint64_t slice              # when it was looked up
    int64_t left                # messages it still wants; below 1: one
    int64_t bytes_left          # 0: no limit
    int64_t served
    int64_t expires_ns          # 0: never
    int64_t heartbeat_ns        # 0: none
    int64_t heartbeat_due_ns
    bint no_wait
    Py_ssize_t reply_len
    const char* reply

    # What priority groups look at; the list is in the order of `rank`, which is 0 without them.
    int rank
    int priority                # 0 to 9; beyond: it named none
    int group                   # place among the names of the groups; -1: it named none
    uint64_t pin                # number of the pin it names or has; 0: none
    int64_t min_pending         # 0: none
    int64_t min_ack_pending
