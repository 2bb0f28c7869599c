"""Batch reads of a store directory or a snapshot (`storeDir`), without a server.

- The driver finds the streams and their live messages; a task reads runs of blocks. Both must see
  the files at the same path, and no server may use them.
- The range of the read is decided as for a read over the network (batch_reader.BatchPlan), with the
  streams of the directory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from natsd.spark.offsets import SourceStreamState
from natsd.spark.reader import filters
from natsd.spark.reader.batch_reader import BatchPlan, Tasks
from natsd.spark.reader.planning import SEQUENCES_PER_PART, WORTHWHILE_SEQUENCES, Cutting
from natsd.spark.reader.streams import StreamChoice, StreamMissing
from natsd.spark.stored.stored_ranges import (
    StoreKeys,
    StoreRange,
)
from natsd.spark.stored.stored_stream_plan import StoredStreamPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter


@dataclass(frozen=True)
class StoreSource:
    """The path of a store directory or snapshot, the account of its streams, and the key files."""

    path: str
    account: str
    keys: StoreKeys


class StorePartition(InputPartition):
    """The blocks that one task reads."""

    def __init__(self, blocks: StoreRange) -> None:
        super().__init__(None)
        self.blocks = blocks


class StoredStreams:
    """The chosen streams of a store, as the source of stream states for a BatchPlan.

    Reads the store when it is created, and blocks. Raises StreamMissing, StoreNotReadable,
    StoreError, OSError.
    """

    def __init__(self, store: StoreSource, choice: StreamChoice) -> None:
        from natsd.spark.stored.offline import list_streams, plan_streams

        known = list_streams(store.path, store.account, store.keys)
        if choice.pattern is None:
            wanted = list(choice.names)
        else:
            wanted = [name for name in known if re.fullmatch(choice.pattern, name)]
        for name in wanted:
            if name not in known:
                raise StreamMissing(
                    f'there is no stream "{name}" of account {store.account} in {store.path};'
                    f" there are: {', '.join(known) or 'none'}"
                )
        plans = plan_streams(store.path, wanted, store.account, store.keys)
        self.plans: dict[str, StoredStreamPlan] = {plan.stream: plan for plan in plans}

    def states(self) -> Mapping[str, SourceStreamState]:
        """Return the states of the chosen streams, by name."""
        return {name: state_of(plan) for name, plan in self.plans.items()}

    def sequence_at(self, stream: SourceStreamState, time_ns: int) -> int:
        """Return the first sequence at or after a time in ns since the epoch."""
        return self.plans[stream.name].sequence_at(time_ns)


def state_of(plan: StoredStreamPlan) -> SourceStreamState:
    """Return the state of a planned stream."""
    return SourceStreamState(
        name=plan.stream,
        first=max(1, plan.first_sequence),
        last=plan.last_sequence,
        messages=plan.rows,
        size=plan.size_bytes,
        created="",
        allow_direct=False,
        overwrites=False,
    )


class StoreReader(DataSourceReader):
    """The batch reader of a store directory or snapshot."""

    def __init__(self, store: StoreSource, plan: BatchPlan, tasks: Tasks) -> None:
        self.store = store
        self.plan = plan
        self.tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions. Reads the store, and blocks."""
        streams = StoredStreams(self.store, self.plan.choice)
        requests = self.plan.whole(streams)
        rows = sum(streams.plans[request.stream].rows for request in requests)
        return [
            StorePartition(blocks)
            for request in requests
            for blocks in streams.plans[request.stream].ranges(
                request,
                min_partitions=parts_of(
                    streams.plans[request.stream].rows, rows, self.plan.cutting
                ),
                max_rows=self.plan.cutting.sequences_max or 0,
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the record batches of a partition; called on executors."""
        if not isinstance(partition, StorePartition):  # Spark's own for an empty plan
            return iter(())
        from natsd.spark.stored.store_read import read_store  # executors only

        tasks = self.tasks
        return iter(read_store(partition.blocks, tasks.names, tasks.batch_rows, tasks.batch_bytes))


class FilteringStoreReader(StoreReader):
    """A reader of a store that takes the filters of `where`."""

    def pushFilters(self, filters_: list[Filter]) -> Iterable[Filter]:
        """Narrow the read by the filters; return those that Spark must still evaluate."""
        selection, left = filters.push(self.plan.selection, filters_)
        self.plan = replace(self.plan, selection=selection)
        return left


def parts_of(rows: int, total: int, how: Cutting) -> int:
    """Return how many tasks should read a stream with `rows` of `total` rows.

    The actual number is lower if the stream has fewer blocks.
    """
    wanted = how.parts_min or min(how.cores, math.ceil(total / WORTHWHILE_SEQUENCES))
    share = math.ceil(wanted * rows / total) if total else 1
    return max(1, share, math.ceil(rows / SEQUENCES_PER_PART))
