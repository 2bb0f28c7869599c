"""The batches that a stream takes, and the limits that a server's options set for open batches.

Source: ADR-50; the defaults are those of nats-server 2.14
(`streamDefaultMaxAtomicBatchInflightPerStream` and its neighbours).
"""

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from natsd.config.jetstream_options import BatchLimits
from natsd.jetstream.advisories import batch_abandoned
from natsd.jetstream.stream.batching import AtomicBatches, FastBatches
from natsd.jetstream.stream.checks import InflightBatches

if TYPE_CHECKING:
    from natsd.jetstream.stream.stream import Stream

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


def take_batches(stream: "Stream") -> None:
    """Take the kinds of batches that the configuration allows.

    Open batches of a kind that it allows no longer are forgotten.
    """
    config, ingest, jetstream = stream.config, stream.ingest, stream.jetstream
    if config.allow_atomic and ingest.atomic_batches is None:
        abandoned = partial(batch_abandoned, stream.account, stream.name)
        ingest.atomic_batches = AtomicBatches(ingest, jetstream.atomic_batches, abandoned)
    elif not config.allow_atomic and ingest.atomic_batches is not None:
        ingest.atomic_batches.close()
        ingest.atomic_batches = None
    if config.allow_batched and ingest.fast_batches is None:
        ingest.fast_batches = FastBatches(ingest, jetstream.fast_batches)
    elif not config.allow_batched and ingest.fast_batches is not None:
        ingest.fast_batches.close()
        ingest.fast_batches = None


def _nanoseconds(span: timedelta) -> int:
    return span // timedelta(microseconds=1) * 1_000
