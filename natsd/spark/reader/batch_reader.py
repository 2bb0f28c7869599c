"""Batch reads: streams of servers, or of a store directory, divided into partitions for tasks.

- The range is fixed once, when Spark plans the read: every task, and every attempt of a task, reads
  the same range.
- Time bounds are exact, because each row's time is compared. To narrow the sequences that are read,
  the server is asked for the sequence at a time that lies TIME_MARGIN_NS outside of the bounds:
  clocks of servers occasionally step back.
- Spark refuses a reader with `pushFilters` if the session does not enable filter pushdown. So the
  data source creates a `FilteringReader` only in the process that calls `pushFilters`, and a
  `BatchReader` in all others.
- A `FilteringReader` is created only if the read has the option `pushFilters` too. Spark (4.2, 4.3)
  keeps the narrowed reader with the loaded DataFrame and uses it again for other queries of the
  same DataFrame or view, with other filters or none: rows would be missing. So a user of the option
  loads the DataFrame anew for each `where`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.sql.datasource import DataSourceReader, InputPartition

from natsd.spark.offsets import (
    EARLIEST,
    LATEST,
    Edge,
    SourceStreamState,
    check_streams,
    end_sequence,
    first_sequence,
)
from natsd.spark.ranges import NO_END, RangeRequest
from natsd.spark.reader import filters
from natsd.spark.reader.filters import Selection
from natsd.spark.reader.planning import Cutting, SequenceSpan, cut
from natsd.spark.reader.streams import ServerStreams, StreamChoice
from natsd.spark.wire.connecting import ClientOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

TIME_MARGIN_NS: Final = 60_000_000_000


class RangePartition(InputPartition):
    """The range that one task reads."""

    def __init__(self, request: RangeRequest) -> None:
        super().__init__(None)
        self.request = request

    def __repr__(self) -> str:
        return f"RangePartition({self.request!r})"


@dataclass(frozen=True)
class Tasks:
    """Parameters of the tasks, sent to the executors.

    `names` are the columns; `batch_rows` and `batch_bytes` limit an Arrow batch.
    """

    connect: ClientOptions
    names: tuple[str, ...]
    batch_rows: int
    batch_bytes: int

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the record batches of a partition. Raises what `read_range` raises."""
        if not isinstance(partition, RangePartition):  # Spark's own for an empty plan
            return iter(())
        # imported here, on executors, because it imports pyarrow
        from natsd.spark.network.network_read import read_range

        return iter(
            read_range(
                self.connect, partition.request, self.names, self.batch_rows, self.batch_bytes
            )
        )


class StreamCatalog(Protocol):
    """Source of stream states: servers, or a store directory."""

    def states(self) -> Mapping[str, SourceStreamState]:
        """Return the states of the chosen streams, by name."""

    def sequence_at(self, stream: SourceStreamState, time_ns: int) -> int:
        """Return the first sequence at or after a time in ns since the epoch."""


@dataclass(frozen=True)
class BatchPlan:
    """The user's batch read as plain values."""

    choice: StreamChoice
    selection: Selection
    cutting: Cutting
    start: Edge = EARLIEST
    end: Edge = LATEST
    fail_on_data_loss: bool = True

    def whole(self, catalog: StreamCatalog) -> list[RangeRequest]:
        """Return one range for each stream, in order and without empty ones.

        Raises OffsetError, DataLoss, StreamMissing.
        """
        states = catalog.states()
        check_streams(self.start, states, "startingOffsets")
        check_streams(self.end, states, "endingOffsets")
        wanted = [state for state in states.values() if self.selection.wants(state)]
        requests = [self.request(self.span(catalog, state), state) for state in wanted]
        return [request for request in requests if not request.is_empty]

    def span(self, catalog: StreamCatalog, state: SourceStreamState) -> SequenceSpan:
        """Return the sequences to read of one stream. Raises OffsetError, DataLoss."""
        first = first_sequence(state, self.start, fail_on_data_loss=self.fail_on_data_loss)
        end = end_sequence(state, self.end, fail_on_data_loss=self.fail_on_data_loss)
        wanted = self.selection
        first = max(first, wanted.first_sequence)
        if wanted.last_sequence is not None:
            end = min(end, wanted.last_sequence + 1)
        # The last message of each subject is chosen among those before the end time; as its rows
        # are not filtered by time, the bound must be exact.
        margin_ns = 0 if wanted.last_per_subject else TIME_MARGIN_NS
        if first < end and wanted.first_ns is not None:
            first = max(first, catalog.sequence_at(state, max(0, wanted.first_ns - margin_ns)))
        if first < end and wanted.last_ns is not None:
            end = min(end, catalog.sequence_at(state, max(0, wanted.last_ns + 1 + margin_ns)))
        return SequenceSpan(state.name, first, end)

    def request(self, span: SequenceSpan, state: SourceStreamState) -> RangeRequest:
        """Return the range of one stream as tasks read it."""
        wanted = self.selection
        cuts_rows = not wanted.last_per_subject
        last_ns = wanted.last_ns if cuts_rows else None
        # The last message of a subject may be replaced before the task reads it; its replacement
        # lies behind the planned end, so the task reads without an end.
        goes_on = wanted.last_per_subject and self.end == LATEST and not wanted.has_end
        return RangeRequest(
            stream=span.stream,
            first_sequence=span.start,
            last_sequence=NO_END if goes_on and span.length else span.end - 1,
            subjects=wanted.subjects,
            fail_on_data_loss=self.fail_on_data_loss and not state.overwrites,
            last_per_subject=wanted.last_per_subject,
            start_time_ns=wanted.first_ns if cuts_rows else None,
            end_time_ns=None if last_ns is None else last_ns + 1,
        )

    def requests(self, catalog: StreamCatalog) -> list[RangeRequest]:
        """Return the ranges of all tasks, of about equal length.

        The last messages of all subjects of a stream are read by one task.
        """
        whole = self.whole(catalog)
        if self.selection.last_per_subject:
            return whole
        by_stream = {request.stream: request for request in whole}
        spans = [
            SequenceSpan(request.stream, request.first_sequence, request.last_sequence + 1)
            for request in whole
        ]
        return [
            replace(by_stream[part.stream], first_sequence=part.start, last_sequence=part.end - 1)
            for part in cut(spans, self.cutting)
        ]


class BatchReader(DataSourceReader):
    """The batch reader of streams on servers."""

    def __init__(self, plan: BatchPlan, tasks: Tasks) -> None:
        self.plan = plan
        self.tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions. Asks the servers, and blocks."""
        with ServerStreams(self.tasks.connect, self.plan.choice) as streams:
            return [RangePartition(request) for request in self.plan.requests(streams)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the record batches of a partition; called on executors."""
        return self.tasks.read(partition)


class FilteringReader(BatchReader):
    """A batch reader that takes the filters of `where`."""

    def pushFilters(self, filters_: list[Filter]) -> Iterable[Filter]:
        """Narrow the read by the filters; return those that Spark must still evaluate."""
        selection, left = filters.push(self.plan.selection, filters_)
        self.plan = replace(self.plan, selection=selection)
        return left
