"""A batch read: streams of servers, or of a store directory, as partitions that tasks read.

- Where it begins and ends is settled once, when Spark plans: every task, and every attempt of one,
  reads the same range.
- Times are settled by rows: what is older or younger is left out exactly. Which sequences to read
  for that is narrowed by a question to the server, TIME_MARGIN_NS wider than asked for, as clocks
  of servers step back now and then.
- Spark refuses a reader with `pushFilters` where the session does not enable them. So the source
  makes a `FilteringReader` only for the process that asks for filters, and a `BatchReader` for any
  other.
- It makes one only where the read says `pushFilters` too. Spark (4.2, 4.3) keeps what a filter left
  with what was loaded, and gives it to whoever uses the same DataFrame or view again, with other
  filters or none: rows would be missing. Who sets the option loads anew for each `where`.
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
    StreamState,
    check_streams,
    end_sequence,
    first_sequence,
)
from natsd.spark.ranges import NO_END, RangeRequest
from natsd.spark.reader import filters
from natsd.spark.reader.filters import Selection
from natsd.spark.reader.planning import Cutting, Span, cut
from natsd.spark.reader.streams import Choice, Streams
from natsd.spark.wire.connecting import ConnectOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

TIME_MARGIN_NS: Final = 60_000_000_000


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, request: RangeRequest) -> None:
        super().__init__(None)
        self.request = request

    def __repr__(self) -> str:
        return f"RangePartition({self.request!r})"


@dataclass(frozen=True)
class Tasks:
    """How tasks read: carried to the executors."""

    connect: ConnectOptions
    names: tuple[str, ...]
    batch_rows: int
    batch_bytes: int

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):  # Spark's own, where there are none of ours
            return iter(())
        # pyarrow and all: where rows are read
        from natsd.spark.network.network_read import read_range

        return iter(
            read_range(
                self.connect, partition.request, self.names, self.batch_rows, self.batch_bytes
            )
        )


class Found(Protocol):
    """Where streams are found: asked of servers, or read in a directory."""

    def states(self) -> Mapping[str, StreamState]: ...
    def sequence_at(self, stream: StreamState, time_ns: int) -> int: ...


@dataclass(frozen=True)
class BatchPlan:
    """What a user asked for, as plain values."""

    choice: Choice
    selection: Selection
    cutting: Cutting
    start: Edge = EARLIEST
    end: Edge = LATEST
    fail_on_data_loss: bool = True

    def whole(self, found: Found) -> list[RangeRequest]:
        """Not yet cut, in order, none empty. Raises OffsetError, DataLoss, StreamMissing."""
        states = found.states()
        check_streams(self.start, states, "startingOffsets")
        check_streams(self.end, states, "endingOffsets")
        wanted = [state for state in states.values() if self.selection.wants(state)]
        requests = [self.request(self.span(found, state), state) for state in wanted]
        return [request for request in requests if not request.is_empty]

    def span(self, found: Found, state: StreamState) -> Span:
        first = first_sequence(state, self.start, fail_on_data_loss=self.fail_on_data_loss)
        end = end_sequence(state, self.end, fail_on_data_loss=self.fail_on_data_loss)
        wanted = self.selection
        first = max(first, wanted.first_sequence)
        if wanted.last_sequence is not None:
            end = min(end, wanted.last_sequence + 1)
        # The last message of each subject is the last one before that time: rows are not cut then.
        margin_ns = 0 if wanted.last_per_subject else TIME_MARGIN_NS
        if first < end and wanted.first_ns is not None:
            first = max(first, found.sequence_at(state, max(0, wanted.first_ns - margin_ns)))
        if first < end and wanted.last_ns is not None:
            end = min(end, found.sequence_at(state, max(0, wanted.last_ns + 1 + margin_ns)))
        return Span(state.name, first, end)

    def request(self, span: Span, state: StreamState) -> RangeRequest:
        wanted = self.selection
        cuts_rows = not wanted.last_per_subject
        last_ns = wanted.last_ns if cuts_rows else None
        # A message that was the last of its subject may be gone when the task looks for it; then
        # there is another one, and without a bound it is the task's.
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

    def requests(self, found: Found) -> list[RangeRequest]:
        """For tasks of about equal length; the last message of each subject is one task's."""
        whole = self.whole(found)
        if self.selection.last_per_subject:
            return whole
        by_stream = {request.stream: request for request in whole}
        spans = [
            Span(request.stream, request.first_sequence, request.last_sequence + 1)
            for request in whole
        ]
        return [
            replace(by_stream[part.stream], first_sequence=part.start, last_sequence=part.end - 1)
            for part in cut(spans, self.cutting)
        ]


class BatchReader(DataSourceReader):
    """Reads what the options say."""

    def __init__(self, plan: BatchPlan, tasks: Tasks) -> None:
        self.plan = plan
        self.tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        with Streams(self.tasks.connect, self.plan.choice) as streams:
            return [RangePartition(request) for request in self.plan.requests(streams)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.tasks.read(partition)


class FilteringReader(BatchReader):
    """Reads of it what `where` leaves."""

    def pushFilters(self, filters_: list[Filter]) -> Iterable[Filter]:
        selection, left = filters.push(self.plan.selection, filters_)
        self.plan = replace(self.plan, selection=selection)
        return left
