"""A checked publish, as it is proposed and applied."""

from libc.stdint cimport int64_t, uint64_t


cdef enum Rollup:
    NO_ROLLUP = 0
    ROLLUP_SUBJECT = 1
    ROLLUP_ALL = 2

cdef enum Scheduling:           # bits: what an entry is besides a message
    IS_SCHEDULE = 1
    ENDS_SCHEDULE = 2           # the subject in its Nats-Scheduler header is purged
    IS_DELAYED = 4              # it waits outside of the stream; its sequence is used up

cdef struct Entry:              # what a replica gets to apply
    const char* subject
    Py_ssize_t subject_len
    const char* headers         # the header block as it is stored
    Py_ssize_t headers_len      # 0: none
    const char* data            # payload without headers
    Py_ssize_t data_len
    const char* message_id
    Py_ssize_t message_id_len   # 0: none
    uint64_t sequence           # the sequence that it gets
    int64_t time_ns             # ns since 1970
    int64_t expires_ns          # 0: it has no lifetime of its own; -1: never expires
    Rollup rollup
    int scheduling              # bits of Scheduling; 0: none
    bint is_skipped             # no consumer wants it: only its sequence is used up
