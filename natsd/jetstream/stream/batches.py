"""The kinds of batches that a stream takes.

Source: ADR-50.
"""

from functools import partial
from typing import TYPE_CHECKING, Protocol

from natsd.jetstream.advisories import batch_abandoned
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.stream.batching import AtomicBatches, FastBatches
from natsd.jetstream.stream.publishing import Ingest

if TYPE_CHECKING:
    from natsd.jetstream.account_resources import AccountResources
    from natsd.jetstream.server_resources import ServerResources


class BatchedStream(Protocol):
    """A stream, as far as its batches need it."""

    config: StreamConfig
    ingest: Ingest
    jetstream: "ServerResources"

    @property
    def account(self) -> "AccountResources":
        """The account."""

    @property
    def name(self) -> str:
        """The stream's name in its account."""


def forget_batches(stream: BatchedStream) -> None:
    """Forget open batches, and take none: the stream does not lead any more."""
    ingest = stream.ingest
    for batches in (ingest.atomic_batches, ingest.fast_batches):
        if batches is not None:
            batches.close()
    ingest.atomic_batches = ingest.fast_batches = None


def take_batches(stream: BatchedStream) -> None:
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
