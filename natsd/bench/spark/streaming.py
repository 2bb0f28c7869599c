"""A sustained streaming read: the micro-batches of a query after its first ones."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from natsd.bench.jetstream.arms import JetStreamServer
from natsd.bench.spark.filling import fill, url
from natsd.bench.spark.processes import Meter
from natsd.bench.spark.scenario import Run, SparkScenario, Stage
from natsd.bench.wire import LoadError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

STREAM = "STREAMED"
COLD_BATCHES = 2
QUERY_SECONDS_MAX = 600


@dataclass(frozen=True)
class StreamRead(SparkScenario):
    """A query that reads the whole stream, `batch` messages per trigger, into a no-op sink.

    The rate is that of whole triggers, with all of Spark's work for each: offsets, logs, commit.
    """

    messages: int
    batch: int
    payload_bytes: int

    def prepare(self, stage: Stage, server: JetStreamServer) -> None:
        """Fill the stream."""
        fill(server, STREAM, self.messages, self.payload_bytes)

    def run(self, stage: Stage, server: JetStreamServer) -> Run:
        """Run the query over the whole stream; raises LoadError if it does not end in time."""
        checkpoint = stage.place / f"checkpoint-{uuid.uuid4()}"
        try:
            with Meter(server.pid) as used:
                query = self._start(stage, server, str(checkpoint))
                ended = query.awaitTermination(QUERY_SECONDS_MAX)
            if not ended:
                query.stop()
                raise LoadError(f"the query did not end in {QUERY_SECONDS_MAX} s")
            done = [dict(each) for each in query.recentProgress if each["numInputRows"]]
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)
        found = sum(each["numInputRows"] for each in done)
        if found < self.messages:
            raise LoadError(f"{found:,} of {self.messages:,} messages were read")
        return Run({"rate": sustained(done)}, used.each(found))

    def _start(self, stage: Stage, server: JetStreamServer, checkpoint: str) -> StreamingQuery:
        reader = stage.spark.readStream.format("jetstream").option("servers", url(server))
        reader = reader.option("stream", STREAM).option("startingOffsets", "earliest")
        writer = reader.option("maxMsgsPerTrigger", str(self.batch)).load().writeStream
        writer = writer.format("noop").option("checkpointLocation", checkpoint)
        return writer.trigger(availableNow=True).start()


def sustained(progress: list[dict[str, Any]]) -> float:
    """Return the rows per second of the triggers after the first COLD_BATCHES ones.

    Raises LoadError if there are no such triggers.
    """
    warm = progress[COLD_BATCHES:]
    if not warm:
        raise LoadError("there were too few micro-batches")
    milliseconds = sum(int(each["durationMs"]["triggerExecution"]) for each in warm)
    return 1e3 * sum(int(each["numInputRows"]) for each in warm) / milliseconds
