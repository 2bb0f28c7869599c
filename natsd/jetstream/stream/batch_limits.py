"""The limits that a server's options set for open batches.

The defaults are those of nats-server 2.14 (`streamDefaultMaxAtomicBatchInflightPerStream` and its
neighbours).
"""

from datetime import timedelta
from typing import Final

from natsd.config.jetstream_options import BatchLimits
from natsd.jetstream.stream.checks import InflightBatches

ATOMIC_PER_STREAM: Final = 50
ATOMIC_TOTAL: Final = 1_000
FAST_PER_STREAM: Final = 1_000
FAST_TOTAL: Final = 50_000
STAGED_BYTES_MAX: Final = 512 << 20
"""Bytes of all uncommitted atomic batches of a server."""


def atomic_batches(limits: BatchLimits) -> InflightBatches:
    """Return the counter and the limits of the atomic batches of a server."""
    return InflightBatches(
        per_stream_max=limits.max_inflight_per_stream or ATOMIC_PER_STREAM,
        total_max=limits.max_inflight_total or ATOMIC_TOTAL,
        msgs_max=limits.max_msgs,
        timeout_ns=_nanoseconds(limits.timeout),
        staged_bytes_max=STAGED_BYTES_MAX,
    )


def fast_batches(limits: BatchLimits) -> InflightBatches:
    """Return the counter and the limits of the fast batches of a server."""
    return InflightBatches(
        per_stream_max=limits.max_inflight_per_stream or FAST_PER_STREAM,
        total_max=limits.max_inflight_total or FAST_TOTAL,
        msgs_max=0,
        timeout_ns=_nanoseconds(limits.timeout),
    )


def _nanoseconds(span: timedelta) -> int:
    return span // timedelta(microseconds=1) * 1_000
