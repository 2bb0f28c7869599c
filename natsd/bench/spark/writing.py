"""An exactly-once write: a table that Spark generates, into a file stream."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from natsd.bench.jetstream.api import Api
from natsd.bench.jetstream.arms import JetStreamServer
from natsd.bench.spark.filling import url
from natsd.bench.spark.processes import Meter
from natsd.bench.spark.scenario import Run, SparkScenario, Stage
from natsd.bench.wire import LoadError

STREAM = "WRITTEN"
SUBJECTS = 1_000
PARTITIONS = 2


@dataclass(frozen=True)
class Write(SparkScenario):
    """A write with `txnAppId` and `txnVersion`, measured from the first row to the commit."""

    messages: int
    payload_bytes: int

    def prepare(self, stage: Stage, server: JetStreamServer) -> None:
        """Warm the write up."""
        self.run(stage, server)

    def run(self, stage: Stage, server: JetStreamServer) -> Run:
        """Write the table into an empty stream; raises LoadError if not all rows are stored."""
        from pyspark.sql import functions

        with Api(server.host, server.port) as api:
            api.remake_stream({"name": STREAM, "subjects": ["written.*"], "storage": "file"})
        number = functions.col("id")
        subject = functions.concat(functions.lit("written."), (number % SUBJECTS).cast("string"))
        text = functions.lpad(number.cast("string"), self.payload_bytes, "order ")
        rows = stage.spark.range(0, self.messages, 1, PARTITIONS)
        rows = rows.select(subject.alias("subject"), text.cast("binary").alias("data"))
        writer = rows.write.format("jetstream").mode("append").option("servers", url(server))
        writer = writer.option("txnAppId", f"bench-{uuid.uuid4()}").option("txnVersion", "1")
        with Meter(server.pid) as used:
            writer.save()
        with Api(server.host, server.port) as api:
            if (found := api.messages(STREAM)) != self.messages:
                raise LoadError(f"{found:,} of {self.messages:,} messages were written")
        return Run({"rate": self.messages / used.seconds}, used.each(self.messages))
