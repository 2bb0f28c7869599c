"""Detection of rows that are already stored, by the message ids in the target streams.

Promise
- Every message behind the stream end that was stored before the call is examined; if the server can
  omit payloads, only headers are read.
- If messages behind the stream end were removed since (a limit, a work queue, a newer value of the
  same subject), the task's rows may be among them. One connection stores in order, so every row
  below the highest found one counts as stored, except those that the record lists as refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from natsd.spark.ranges import RangeRequest
from natsd.spark.sink.begin_records import StreamEnd, WriteError
from natsd.spark.sink.publishing import FoundIds
from natsd.spark.sink.targets import TargetStreams
from natsd.spark.sink.written_columns import maps
from natsd.spark.wire.connecting import ClientOptions

if TYPE_CHECKING:
    import pyarrow as pa

ReadHeaders: TypeAlias = "Callable[[ClientOptions, RangeRequest], Iterator[pa.RecordBatch]]"


def read_headers(options: ClientOptions, request: RangeRequest) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the range with one column, `headers`. Raises ClientError."""
    from natsd.spark.network.network_read import read_range

    return read_range(options, request, ("headers",))


def stored_ids(
    targets: TargetStreams,
    stream_ends: Mapping[str, StreamEnd],
    prefix: bytes,
    *,
    by_row: bool,
    refused: tuple[int, ...] = (),
    read: ReadHeaders = read_headers,
) -> FoundIds:
    """Return the message ids behind the stream ends that begin with `prefix`.

    `by_row`: ids end with a row number. `refused` lists the rows that the record knows as refused.
    Raises ClientError, WriteError if a stream was recreated.
    """
    found = FoundIds()
    has_holes = False
    for name, stream_end in stream_ends.items():
        now = targets.ask(name)
        if (
            now.stream_end.created != stream_end.created
            or now.stream_end.sequence < stream_end.sequence
        ):
            raise WriteError(
                f'the stream "{name}" was made anew or restored since this write began: purge '
                "the write's records (begin.…) from the state bucket to send all of it again"
            )
        first, last = stream_end.sequence + 1, now.stream_end.sequence
        if first > last:
            continue
        count = 0
        request = RangeRequest(name, first, last, fail_on_data_loss=False)
        for batch in read(targets.client.options, request):
            count += batch.num_rows
            found.take(batch.num_rows, maps(batch.column(0)), prefix, by_row)
        has_holes = has_holes or count < last - first + 1
    if by_row and has_holes:
        found.stored_below = min([*refused, found.highest_row + 1])
    return found
