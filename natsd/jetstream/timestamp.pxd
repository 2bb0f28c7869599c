"""RFC 3339 with nanoseconds, UTC, as `Nats-Time-Stamp` says it, without a Python object."""

from libc.stdint cimport int64_t


cdef enum:
    TIMESTAMP_ROOM = 32         # "2262-04-11T23:47:16.854775807Z" is the longest
    SECOND_BYTES = 19           # "2262-04-11T23:47:16"


cdef struct Second:             # the last one written: messages come in the order of time
    int64_t number              # since 1970
    char[SECOND_BYTES] text
    bint is_known


# Nanoseconds since 1970; digits of the fraction that are zero are left out at its end. The length.
cdef Py_ssize_t write_timestamp(char* to, int64_t time_ns, Second* last) noexcept nogil
