"""How many batches of one kind are under way, for compiled callers."""

from libc.stdint cimport int64_t


cdef class InflightBatches:
    cdef readonly int64_t per_stream_max
    cdef readonly int64_t total_max
    cdef readonly int64_t msgs_max          # of one batch
    cdef readonly int64_t staged_bytes_max
    cdef readonly int64_t timeout_ns        # without a message, and a batch is given up
    cdef readonly int64_t count             # of all streams
    cdef readonly int64_t staged_bytes      # that they hold in memory

    cdef bint is_full(self, int64_t of_stream) noexcept nogil   # no room for one more
