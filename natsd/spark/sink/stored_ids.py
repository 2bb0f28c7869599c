"""Which rows of a task its target has already: their message ids, read from the stream itself.

Promise
- Every message behind the floor that was stored before the call is looked at, by its headers only
  where the server can leave the rest out.
- Where messages behind the floor were removed since (a limit, a work queue, a newer value of the
  same subject), rows of ours may be among them. One connection stores in order, so that every row
  below the highest that is found counts as stored, but for those that the record says were refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from natsd.spark.ranges import RangeRequest
from natsd.spark.sink.begin_records import Floor, WriteError
from natsd.spark.sink.publishing import FoundIds
from natsd.spark.sink.targets import Targets
from natsd.spark.sink.written_columns import maps
from natsd.spark.wire.connecting import ConnectOptions

if TYPE_CHECKING:
    import pyarrow as pa

ReadHeaders: TypeAlias = "Callable[[ConnectOptions, RangeRequest], Iterator[pa.RecordBatch]]"


def read_headers(options: ConnectOptions, request: RangeRequest) -> Iterator[pa.RecordBatch]:
    """One column, `headers`. Raises ClientError."""
    from natsd.spark.network.network_read import read_range

    return read_range(options, request, ("headers",))


def stored_ids(
    targets: Targets,
    floors: Mapping[str, Floor],
    prefix: bytes,
    *,
    by_row: bool,
    refused: tuple[int, ...] = (),
    read: ReadHeaders = read_headers,
) -> FoundIds:
    """Those behind `prefix`. Raises ClientError, WriteError."""
    found = FoundIds()
    has_holes = False
    for name, floor in floors.items():
        now = targets.ask(name)
        if now.floor.created != floor.created or now.floor.sequence < floor.sequence:
            raise WriteError(
                f'the stream "{name}" was made anew or restored since this write began: purge '
                "the write's records (begin.…) from the state bucket to send all of it again"
            )
        first, last = floor.sequence + 1, now.floor.sequence
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
