"""Streaming reads: micro-batches of streams, by sequence.

- An offset is the next sequence to read of each stream. A batch is the range between two offsets,
  which Spark writes to its offset log before it reads. So a batch can be read again at any time,
  also after a restart, and has the same messages as long as the stream holds them.
- Nothing is acknowledged and the server keeps no state: only the checkpoint holds the position of a
  query.
- A new stream that matches the pattern is read from its first message. It enters the offsets with
  one micro-batch and is read by the next one: so its beginning is in the offset log before it is
  read.
- Messages that disappeared before they were read are an error. So is a stream that was deleted, or
  recreated (its sequences begin again). With failOnDataLoss=false these cases log a warning, and
  reading continues with the existing messages. In a stream that keeps a limited number of messages
  per subject, the disappearance of older messages is no loss.
- maxMsgsPerTrigger counts sequences: a batch has at most as many rows, and fewer if messages were
  deleted or subjects are filtered. maxBytesPerTrigger is converted with the mean size of the
  stream's messages. Both limits are distributed over the streams in proportion to what waits.
- Trigger.AvailableNow reads up to the ends of the streams at its start, within these limits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from natsd.spark.offsets import (
    Edge,
    Offsets,
    SourceStreamState,
    check_streams,
    first_sequence,
)
from natsd.spark.ranges import DataLoss, RangeRequest
from natsd.spark.reader.batch_reader import RangePartition, Tasks
from natsd.spark.reader.planning import Cutting, SequenceSpan, cut, share
from natsd.spark.reader.streams import ServerStreams, StreamChoice, StreamMissing

if TYPE_CHECKING:
    import pyarrow as pa

LOG: Final = logging.getLogger(__name__)

Clock = Callable[[], float]


class StreamReplaced(Exception):
    """A stream was recreated: its sequences began again since it was last read."""


@dataclass(frozen=True)
class MicroBatchLimits:
    """Limits on the size of a micro-batch; None: unlimited.

    A batch with fewer than `messages_min` messages waits for at most `delay_s_max` seconds.
    """

    messages_max: int | None = None
    bytes_max: int | None = None
    messages_min: int | None = None
    delay_s_max: float = 900.0

    def as_read_limit(self) -> ReadLimit:
        """Return a limit for Spark to pass back to `latestOffset`; one limit stands for all."""
        if self.messages_max is not None:
            return ReadMaxRows(self.messages_max)
        if self.bytes_max is not None:
            return ReadMaxBytes(self.bytes_max)
        if self.messages_min is not None:
            return ReadMinRows(self.messages_min)
        return ReadAllAvailable()

    def admit(
        self, states: Mapping[str, SourceStreamState], waiting: dict[str, int]
    ) -> dict[str, int]:
        """Return how many of the waiting sequences of each stream the batch may have."""
        if self.bytes_max is not None:
            sizes = {
                name: max(1, int(count * states[name].bytes_per_sequence()))
                for name, count in waiting.items()
                if count
            }
            shares = share(self.bytes_max, sizes)
            waiting = waiting | {
                # At least one: a message larger than the limit must still be read.
                name: max(1, waiting[name] * shares[name] // size)
                for name, size in sizes.items()
            }
        if self.messages_max is not None:
            waiting = share(self.messages_max, waiting)
        return waiting


@dataclass(frozen=True)
class StreamingPlan:
    """The user's streaming read as plain values.

    `start_ns` is the start time in ns since the epoch; None: `start` counts.
    """

    choice: StreamChoice
    subjects: tuple[str, ...]
    cutting: Cutting
    limits: MicroBatchLimits
    start: Edge
    start_ns: int | None
    fail_on_data_loss: bool


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming reader of streams.

    The driver's process keeps one during a query's run; executors get a copy that only reads.
    """

    def __init__(self, plan: StreamingPlan, tasks: Tasks, clock: Clock = time.monotonic) -> None:
        self.plan = plan
        self.tasks = tasks
        self._clock = clock
        self._streams = ServerStreams(tasks.connect, plan.choice)
        self._created: dict[str, str] = {}
        self._seen: dict[str, SourceStreamState] = {}
        self._warnings: set[str] = set()
        self._target: Offsets | None = None
        self._last_batch_s = clock()

    def __getstate__(self) -> dict[str, Any]:
        return {"plan": self.plan, "tasks": self.tasks}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["plan"], state["tasks"])  # type: ignore[misc]  # no connection

    # Called by the driver

    def initialOffset(self) -> Offsets:
        """Return the offsets at which a new query begins.

        Raises OffsetError, DataLoss, StreamMissing.
        """
        states = self._streams.states()
        check_streams(self.plan.start, states, "startingOffsets")
        return {name: self._begin(state) for name, state in states.items()}

    def _begin(self, state: SourceStreamState) -> int:
        if self.plan.start_ns is not None:
            return self._streams.sequence_at(state, self.plan.start_ns)
        failing = self.plan.fail_on_data_loss
        return first_sequence(state, self.plan.start, fail_on_data_loss=failing)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the options ask for."""
        return self.plan.limits.as_read_limit()

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the ends of the streams: the query stops there."""
        states = self._streams.states()
        self._target = {name: state.end for name, state in states.items()}

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return the end of the next batch, within the limits.

        Returns `start` if nothing waits, or if the batch waits for more messages. Asks the servers,
        and blocks. Raises DataLoss, StreamReplaced, StreamMissing.
        """
        states = self._seen = self._known_states(start)
        begin = {name: self._continue(start, states[name]) for name in states}
        # A new or recreated stream enters the offsets first; the next batch reads it.
        entering = {name for name in states if begin[name] < start.get(name, begin[name] + 1)}
        waiting = {
            name: max(0, self._end_of(states[name]) - begin[name])
            for name in states
            if name not in entering
        }
        if not isinstance(limit, ReadAllAvailable):
            if not entering and self._waits_for_more(sum(waiting.values())):
                return start
            waiting = self.plan.limits.admit(states, waiting)
        if any(waiting.values()):
            self._last_batch_s = self._clock()
        latest = {name: begin[name] + waiting.get(name, 0) for name in states}
        return dict(sorted((start | latest).items()))

    def reportLatestOffset(self) -> Offsets | None:
        """Return the last known ends of the streams; a listener derives the lag from them."""
        return {name: state.end for name, state in sorted(self._seen.items())} or None

    def stop(self) -> None:
        """Close the connection."""
        self._streams.close()

    # Progress of the offsets

    def _known_states(self, start: Offsets) -> dict[str, SourceStreamState]:
        """Return the states of the existing chosen streams.

        Raises StreamMissing for a stream that was read and is gone, if the query fails on data
        loss.
        """
        named = self.plan.choice.pattern is None
        try:
            states = self._streams.states()
        except StreamMissing:
            if self.plan.fail_on_data_loss:
                raise
            found = {name: self._streams.find(name) for name in self.plan.choice.names}
            states = {name: state for name, state in found.items() if state is not None}
        for name in sorted(set(start) - set(states)):
            if named and name not in self.plan.choice.names:
                continue  # not read since a restart: its offset is kept
            if self._streams.find(name) is None:
                self._report_loss(
                    StreamMissing(
                        f'stream "{name}" was deleted after it was read up to'
                        f" sequence {start[name] - 1}: set failOnDataLoss to false to go on without"
                    )
                )
        return states

    def _continue(self, start: Offsets, state: SourceStreamState) -> int:
        """Return where the next batch begins in the stream. Raises DataLoss, StreamReplaced."""
        known = self._created.setdefault(state.name, state.created)
        begin = start.get(state.name)
        if begin is None:
            return state.first
        if known != state.created or begin > state.end:
            self._report_loss(replaced(state, begin))
            self._created[state.name] = state.created
            return state.first
        if begin < state.first and not state.overwrites:
            self._report_loss(DataLoss(state.name, begin, state.first - 1))
        return max(begin, state.first)

    def _report_loss(self, error: Exception) -> None:
        if self.plan.fail_on_data_loss:
            raise error
        if str(error) not in self._warnings:  # once: a warning at every trigger would flood the log
            self._warnings.add(str(error))
            LOG.warning("%s", error)

    def _end_of(self, state: SourceStreamState) -> int:
        """Return the end of the readable sequences; with AvailableNow it is the remembered end."""
        if self._target is None:
            return state.end
        return min(state.end, self._target.get(state.name, 0))

    def _waits_for_more(self, waiting: int) -> bool:
        least = self.plan.limits.messages_min
        if least is None or waiting >= least or self._target is not None:
            return False
        return self._clock() - self._last_batch_s < self.plan.limits.delay_s_max

    # Read by tasks

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return the partitions of a batch."""
        spans = [SequenceSpan(name, start.get(name, end[name]), end[name]) for name in sorted(end)]
        overwriting = self._overwriting([span.stream for span in spans if span.length])
        return [
            RangePartition(
                RangeRequest(
                    stream=part.stream,
                    first_sequence=part.start,
                    last_sequence=part.end - 1,
                    subjects=self.plan.subjects,
                    fail_on_data_loss=self.plan.fail_on_data_loss
                    and part.stream not in overwriting,
                )
            )
            for part in cut(spans, self.plan.cutting)
        ]

    def _overwriting(self, names: Sequence[str]) -> set[str]:
        found = (self._seen.get(name) or self._streams.find(name) for name in names)
        return {state.name for state in found if state is not None and state.overwrites}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the record batches of a partition; called on executors."""
        return self.tasks.read(partition)


def replaced(state: SourceStreamState, begin: int) -> StreamReplaced:
    """Return the error for a stream that was recreated."""
    return StreamReplaced(
        f'stream "{state.name}" was deleted and made anew: it ends with sequence {state.last}, and'
        f" the checkpoint is at {begin}; start with a new checkpoint, or set failOnDataLoss to"
        " false to read it from its beginning"
    )
