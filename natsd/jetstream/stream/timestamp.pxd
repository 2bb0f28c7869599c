"""Timestamps in RFC 3339 with nanoseconds, UTC, as in `Nats-Time-Stamp`; no Python objects."""

from libc.stdint cimport int64_t


cdef enum:
    TIMESTAMP_ROOM = 32         # longest: "2262-04-11T23:47:16.854775807Z"
    SECOND_BYTES = 19           # "2262-04-11T23:47:16"


cdef struct Second:             # the last written second: messages come in order of time
    int64_t number              # seconds since 1970
    char[SECOND_BYTES] text
    bint is_known


# Writes a time (nanoseconds since 1970) without trailing zeros in the fraction. Returns the length
# in bytes, at most TIMESTAMP_ROOM. `last` caches the text of the second.
cdef Py_ssize_t write_timestamp(char* to, int64_t time_ns, Second* last) noexcept nogil
