"""Reads a range of a stream over the network, as Arrow record batches.

    read_range ─┬─ batched direct gets (direct_read.py)     servers from 2.11, if allowed
                ├─ an ordered pull consumer (pull_read.py)  else; several filters; no payloads
                └─ the last of each subject (last_read.py)

Promise
- Each row is yielded once, in the order of the sequences, also if connections fail: after a failure
  the missing rows are requested again, from another server if the connection was lost, until
  `retries` further attempts in a row yield nothing.
- Memory is bounded for any range: the receive buffer (1 MiB, or the largest message), two batches
  being filled and one that was yielded (each `max_bytes` and one message, doubled because
  allocations double), and the early rows of one request (`max_bytes` and one message).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from natsd.spark.errors import (
    ConnectionLost,
    JetStreamApiError,
    NoResponders,
    ProtocolViolation,
    RequestTimeout,
)
from natsd.spark.network.direct_read import DirectReader
from natsd.spark.network.last_read import LastReader
from natsd.spark.network.pull_read import ConsumerGone, PullReader
from natsd.spark.network.range_progress import Lagging, RangeProgress
from natsd.spark.ranges import RangeRequest
from natsd.spark.rows.columns import NAMES, checked
from natsd.spark.wire.client import NatsClient
from natsd.spark.wire.connecting import ClientOptions

if TYPE_CHECKING:
    import pyarrow as pa

BATCHED_DIRECT_GET: Final = (2, 11)
RETRIED: Final = (
    ConnectionLost,
    ConsumerGone,
    Lagging,
    NoResponders,
    ProtocolViolation,
    RequestTimeout,
)
ON_ANOTHER_CONNECTION: Final = (ConnectionLost, ProtocolViolation, RequestTimeout)
UNAVAILABLE: Final = 503
"""Code of a JetStream API error that is temporary: there is no leader."""
BACKOFF_DOUBLINGS_MAX: Final = 6


def read_range(
    connect: ClientOptions,
    request: RangeRequest,
    names: Sequence[str] = NAMES,
    max_rows: int = 10_000,
    max_bytes: int = 8 << 20,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """Yield batches of at most `max_rows` rows and about `max_bytes` bytes.

    The batches have the columns `names`.

    Blocks on the network. `sleep` takes seconds. Raises DataLoss, JetStreamApiError,
    AuthorizationError, ConnectError, ClientError.
    """
    chosen = checked(names)
    if request.is_empty:
        return
    with NatsClient(connect, sleep) as client:
        progress = RangeProgress(client, request, chosen, max_rows, max_bytes)
        failures = 0
        while True:
            before = progress.last
            try:
                progress.begin()
                if not progress.is_done:
                    yield from reader_of(progress).batches()
                break
            except (*RETRIED, JetStreamApiError) as error:
                if isinstance(error, JetStreamApiError) and error.code != UNAVAILABLE:
                    raise
                failures = 1 if progress.last > before else failures + 1
                if failures > connect.retries:
                    raise
                sleep(connect.retry_interval_s * 2 ** min(failures - 1, BACKOFF_DOUBLINGS_MAX))
                if isinstance(error, ON_ANOTHER_CONNECTION):
                    client.reconnect()
                else:
                    client.unsubscribe_all()
        if progress.batch.rows:
            yield progress.take(progress.batch)


def reader_of(progress: RangeProgress) -> DirectReader | LastReader | PullReader:
    """Return the reader that fits the stream, its server and the request.

    A pull consumer is also used if `data` is not read, because it can leave the payloads on the
    server. The exceptions are streams with another retention than limits: there a consumer would
    count as interest, and a work queue accepts no consumer without acknowledgements.
    """
    info, request = progress.info, progress.request
    direct = info.allow_direct and info.server_version >= BATCHED_DIRECT_GET
    if request.last_per_subject:
        return LastReader(progress, direct=direct)
    lean = "data" not in progress.names and info.is_kept
    if not direct or len(request.subjects) > 1 or lean:
        return PullReader(progress)
    return DirectReader(progress)
