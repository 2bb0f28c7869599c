"""The number of open batches of one kind in the server, for compiled callers."""

from libc.stdint cimport int64_t


cdef class InflightBatches:
    cdef readonly int64_t per_stream_max
    cdef readonly int64_t total_max
    cdef readonly int64_t msgs_max          # messages in one batch
    cdef readonly int64_t staged_bytes_max
    cdef readonly int64_t timeout_ns        # a batch without a message for that long is given up
    cdef readonly int64_t count             # open batches of all streams
    cdef readonly int64_t staged_bytes      # bytes that they hold in memory

    # Whether a stream with `of_stream` open batches may not open another one.
    cdef bint is_full(self, int64_t of_stream) noexcept nogil
