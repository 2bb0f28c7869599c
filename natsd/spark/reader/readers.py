"""Construction of readers from options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsd.spark.offsets import EARLIEST, LATEST
from natsd.spark.options import DataSourceOptionsError, ReadOptions
from natsd.spark.reader.batch_reader import BatchPlan, BatchReader, FilteringReader, Tasks
from natsd.spark.reader.filters import Selection
from natsd.spark.reader.planning import cutting
from natsd.spark.reader.queue_reader import MESSAGES_DEFAULT, QueuePlan, QueueReader
from natsd.spark.reader.store_reader import FilteringStoreReader, StoreReader, StoreSource
from natsd.spark.reader.stream_reader import MicroBatchLimits, StreamingPlan, StreamReader
from natsd.spark.reader.streams import StreamChoice
from natsd.spark.rows import columns
from natsd.spark.stored.stored_ranges import StoreKeys

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


def batch_reader(
    options: ReadOptions, schema: StructType, *, takes_filters: bool
) -> DataSourceReader:
    """Return the reader of a batch read. Raises DataSourceOptionsError.

    `takes_filters`: the reader implements `pushFilters`.
    """
    end_ns = options.ending_timestamp
    plan = BatchPlan(
        choice=choice_of(options),
        selection=Selection(
            subjects=options.subjects,
            first_ns=options.starting_timestamp,
            last_ns=None if end_ns is None else end_ns - 1,
            last_per_subject=options.last_per_subject,
        ),
        cutting=cutting(options.min_partitions, options.max_records_per_partition),
        start=EARLIEST if options.starting_offsets is None else options.starting_offsets,
        end=LATEST if options.ending_offsets is None else options.ending_offsets,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    tasks = tasks_of(options, schema)
    if options.store_dir is None:
        return (FilteringReader if takes_filters else BatchReader)(plan, tasks)
    keys = StoreKeys(options.key_file or "", options.prev_key_file or "", options.cipher or "")
    store = StoreSource(options.store_dir, options.account, keys)
    return (FilteringStoreReader if takes_filters else StoreReader)(store, plan, tasks)


def stream_reader(options: ReadOptions, schema: StructType) -> DataSourceStreamReader:
    """Return the reader of a streaming read. Raises DataSourceOptionsError."""
    tasks = tasks_of(options, schema)
    if options.mode == "queue":
        assert options.stream is not None and options.consumer is not None
        queue = QueuePlan(
            stream=options.stream,
            consumer=options.consumer,
            subjects=options.subjects,
            ack_wait_s=options.ack_wait,
            messages_max=options.max_msgs_per_trigger or MESSAGES_DEFAULT,
        )
        return QueueReader(queue, tasks)
    plan = StreamingPlan(
        choice=choice_of(options),
        subjects=options.subjects,
        cutting=cutting(options.min_partitions, options.max_records_per_partition),
        limits=MicroBatchLimits(
            messages_max=options.max_msgs_per_trigger,
            bytes_max=options.max_bytes_per_trigger,
            messages_min=options.min_msgs_per_trigger,
            delay_s_max=options.max_trigger_delay,
        ),
        start=LATEST if options.starting_offsets is None else options.starting_offsets,
        start_ns=options.starting_timestamp,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    return StreamReader(plan, tasks)


def choice_of(options: ReadOptions) -> StreamChoice:
    """Return the streams that the options choose."""
    return StreamChoice(options.named_streams, options.streams_pattern)


def tasks_of(options: ReadOptions, schema: StructType) -> Tasks:
    """Return the parameters of the tasks; the columns are those of the schema.

    A user may pass a schema of fewer columns. Raises DataSourceOptionsError.
    """
    return Tasks(
        connect=options.connect,
        names=names_of(schema),
        batch_rows=options.batch_rows,
        batch_bytes=options.batch_bytes,
    )


def names_of(schema: StructType) -> tuple[str, ...]:
    """Return the column names of the schema.

    Raises DataSourceOptionsError if its types are not theirs.
    """
    from pyspark.sql.types import StructType

    names = tuple(schema.fieldNames())
    ours = columns.ddl(columns.checked(names))
    found = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)
    if found.replace(" ", "").lower() != ours.replace(" ", "").lower():
        raise DataSourceOptionsError(
            f"the schema given is not that of the columns, which are: {ours}"
        )
    assert isinstance(schema, StructType)
    return names
