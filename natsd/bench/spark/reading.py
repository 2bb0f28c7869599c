"""Batch reads: over the network, from a store directory, and from Parquet files with the same rows.

A run measures one query, from its start to its answer: the number of rows, and the sum of the
lengths of their payloads. The answer is checked. Over the network all columns are read, as for a
user who selects none. From Parquet Spark reads only the column that the query names, `data`; a read
with `storeDir` is limited to that column by its option `columns`, so that the two do the same work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from natsd.bench.jetstream.arms import JetStreamServer
from natsd.bench.spark.filling import fill, url
from natsd.bench.spark.processes import Meter
from natsd.bench.spark.scenario import Run, SparkScenario, Stage
from natsd.bench.wire import LoadError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LARGE = "LARGE"
WARMING_RUNS = 5


def stream_of(payload_bytes: int) -> str:
    """Return the name of the stream with payloads of this size."""
    return f"ORDERS_{payload_bytes}"


def counted(
    stage: Stage, rows: DataFrame, messages: int, payload_bytes: int, server: JetStreamServer | None
) -> Run:
    """Run the query and return the rate and CPU time; raises LoadError if the answer is wrong."""
    from pyspark.sql import functions

    query = rows.agg(functions.count("*"), functions.sum(functions.length("data")))
    with Meter(server.pid if server is not None else None) as used:
        count, length = query.collect()[0]
    stage.first_read_seconds = stage.first_read_seconds or used.seconds
    if (count, length) != (messages, messages * payload_bytes):
        raise LoadError(f"{count:,} rows with {length:,} bytes, not {messages:,} messages")
    return Run({"rate": messages / used.seconds}, used.each(messages))


def network(
    stage: Stage, server: JetStreamServer, stream: str, messages: int, **options: object
) -> DataFrame:
    """Return a network read of the first `messages` messages of the stream."""
    reader = stage.spark.read.format("jetstream").option("servers", url(server))
    reader = reader.option("stream", stream)
    reader = reader.option("endingOffsets", f'{{"{stream}": {messages + 1}}}')
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


@dataclass(frozen=True)
class NetworkRead(SparkScenario):
    """A network read of a stream, in as many partitions as natsd.spark makes of it."""

    messages: int
    payload_bytes: int

    def prepare(self, stage: Stage, server: JetStreamServer) -> None:
        """Fill the stream and warm the read up."""
        fill(server, stream_of(self.payload_bytes), self.messages, self.payload_bytes)
        for _ in range(WARMING_RUNS):
            self.run(stage, server)

    def run(self, stage: Stage, server: JetStreamServer) -> Run:
        """Read all rows once."""
        rows = network(stage, server, stream_of(self.payload_bytes), self.messages)
        return counted(stage, rows, self.messages, self.payload_bytes, server)


@dataclass(frozen=True)
class ParquetRead(SparkScenario):
    """A read of the same rows from Parquet files that Spark wrote (compressed by snappy)."""

    alone: ClassVar[bool] = True

    messages: int
    payload_bytes: int

    def prepare(self, stage: Stage, server: JetStreamServer) -> None:
        """Write the Parquet files and warm the read up."""
        stream = stream_of(self.payload_bytes)
        fill(server, stream, self.messages, self.payload_bytes)
        rows = network(stage, server, stream, self.messages)
        rows.write.mode("overwrite").option("compression", "snappy").parquet(self._path(stage))
        for _ in range(WARMING_RUNS):
            self.run(stage, server)

    def run(self, stage: Stage, server: JetStreamServer) -> Run:
        """Read all rows once."""
        rows = stage.spark.read.parquet(self._path(stage))
        return counted(stage, rows, self.messages, self.payload_bytes, None)

    def _path(self, stage: Stage) -> str:
        return str(stage.place / f"parquet-{self.payload_bytes}")


@dataclass(frozen=True)
class StoreRead(SparkScenario):
    """A read of the same rows from the server's files, while the server is stopped."""

    ours_only: ClassVar[bool] = True

    messages: int
    payload_bytes: int

    def prepare(self, stage: Stage, server: JetStreamServer) -> None:
        """Fill the stream, stop the server, and warm the read up."""
        fill(server, stream_of(self.payload_bytes), self.messages, self.payload_bytes)
        server.stop()
        for _ in range(WARMING_RUNS):
            self.run(stage, server)

    def run(self, stage: Stage, server: JetStreamServer) -> Run:
        """Read all rows once."""
        reader = stage.spark.read.format("jetstream").option("storeDir", str(server.store_dir))
        reader = reader.option("columns", "data")
        rows = reader.option("stream", stream_of(self.payload_bytes)).load()
        return counted(stage, rows, self.messages, self.payload_bytes, None)

    def finish(self, stage: Stage, server: JetStreamServer) -> None:
        """Start the server again."""
        server.start()


@dataclass(frozen=True)
class Growth(SparkScenario):
    """A read of `messages` rows in `partitions` partitions, of a stream with `stored` messages."""

    ours_only: ClassVar[bool] = True

    messages: int
    partitions: int
    stored: int
    payload_bytes: int

    def prepare(self, stage: Stage, server: JetStreamServer) -> None:
        """Fill the stream and warm the read up."""
        fill(server, LARGE, self.stored, self.payload_bytes)
        self.run(stage, server)

    def run(self, stage: Stage, server: JetStreamServer) -> Run:
        """Read the rows once."""
        rows = network(
            stage,
            server,
            LARGE,
            self.messages,
            minPartitions=self.partitions,
            maxRecordsPerPartition=self.messages,
        )
        return counted(stage, rows, self.messages, self.payload_bytes, server)
