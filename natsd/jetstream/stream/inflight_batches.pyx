"""InflightBatches: the limits for all open batches of a kind in a server, and their number.

There is one for atomic and one for fast batches. Streams add their own batches and take them out
again.

Source: ADR-50; the options `jetstream.limits.batch` of nats-server 2.14.
"""

from libc.stdint cimport int64_t


cdef class InflightBatches:
    def __init__(
        self, *, int64_t per_stream_max, int64_t total_max, int64_t msgs_max, int64_t timeout_ns,
        int64_t staged_bytes_max=0,
    ):
        self.per_stream_max = per_stream_max
        self.total_max = total_max
        self.msgs_max = msgs_max
        self.staged_bytes_max = staged_bytes_max
        self.timeout_ns = timeout_ns

    cdef bint is_full(self, int64_t of_stream) noexcept nogil:
        return of_stream >= self.per_stream_max or self.count >= self.total_max
