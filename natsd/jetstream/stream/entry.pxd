"""A publish that was checked, as it is proposed and applied."""

from libc.stdint cimport int64_t, uint64_t


cdef enum Rollup:
    NO_ROLLUP = 0
    ROLLUP_SUBJECT = 1
    ROLLUP_ALL = 2

cdef struct Entry:              # what a replica gets to apply
    const char* subject
    Py_ssize_t subject_len
    const char* headers         # as they are stored
    Py_ssize_t headers_len      # 0: none
    const char* data            # the payload alone
    Py_ssize_t data_len
    const char* message_id
    Py_ssize_t message_id_len   # 0: none
    uint64_t sequence           # the one that it gets
    int64_t time_ns             # since 1970
    int64_t expires_ns          # 0: never
    Rollup rollup
    bint is_skipped             # nobody is interested: its sequence is used up
