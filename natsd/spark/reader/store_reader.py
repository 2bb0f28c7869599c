"""A batch read of a store directory or a snapshot (`storeDir`): no server is involved.

- The driver reads what streams there are and which of their messages live; a task reads runs of
  blocks. Both must see the files at the same path, and no server may run on them.
- What a user asked for is settled as for a read over the network (batch_reader.BatchPlan): the
  streams here are those of the directory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from natsd.spark.offsets import StreamState
from natsd.spark.reader import filters
from natsd.spark.reader.batch_reader import BatchPlan, Tasks
from natsd.spark.reader.planning import SEQUENCES_PER_PART, WORTHWHILE_SEQUENCES, Cutting
from natsd.spark.reader.streams import Choice, StreamMissing
from natsd.spark.stored.stored_ranges import StoreKeys, StoreRange, StreamPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter


@dataclass(frozen=True)
class Store:
    """Where it is, and which account's streams of it are read."""

    path: str
    account: str
    keys: StoreKeys


class StorePartition(InputPartition):
    """What one task reads."""

    def __init__(self, blocks: StoreRange) -> None:
        super().__init__(None)
        self.blocks = blocks


class StoredStreams:
    """The chosen streams of a store, as BatchPlan asks for them."""

    def __init__(self, store: Store, choice: Choice) -> None:
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
        self.plans: dict[str, StreamPlan] = {plan.stream: plan for plan in plans}

    def states(self) -> Mapping[str, StreamState]:
        return {name: state_of(plan) for name, plan in self.plans.items()}

    def sequence_at(self, stream: StreamState, time_ns: int) -> int:
        return self.plans[stream.name].sequence_at(time_ns)


def state_of(plan: StreamPlan) -> StreamState:
    return StreamState(
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
    """Reads what the options say."""

    def __init__(self, store: Store, plan: BatchPlan, tasks: Tasks) -> None:
        self.store = store
        self.plan = plan
        self.tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
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
        if not isinstance(partition, StorePartition):  # Spark's own, where there are none of ours
            return iter(())
        from natsd.spark.stored.store_read import read_store  # where rows are read

        tasks = self.tasks
        return iter(read_store(partition.blocks, tasks.names, tasks.batch_rows, tasks.batch_bytes))


class FilteringStoreReader(StoreReader):
    """Reads of it what `where` leaves."""

    def pushFilters(self, filters_: list[Filter]) -> Iterable[Filter]:
        selection, left = filters.push(self.plan.selection, filters_)
        self.plan = replace(self.plan, selection=selection)
        return left


def parts_of(rows: int, total: int, how: Cutting) -> int:
    """How many tasks a stream with so many of all rows gets, if it has as many blocks."""
    wanted = how.parts_min or min(how.cores, math.ceil(total / WORTHWHILE_SEQUENCES))
    share = math.ceil(wanted * rows / total) if total else 1
    return max(1, share, math.ceil(rows / SEQUENCES_PER_PART))
