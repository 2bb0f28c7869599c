"""A streaming read, sustained: the micro-batches of a query behind its first ones."""

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
    """All that is there, `batch` messages a trigger, to a sink that throws them away.

    The rate is that of the triggers, with all that Spark does for one: offsets, logs, commit.
    """

    messages: int
    batch: int
    payload_bytes: int

    def prepare(self, stage: Stage, server: JetStreamServer) -> None:
        fill(server, STREAM, self.messages, self.payload_bytes)

    def run(self, stage: Stage, server: JetStreamServer) -> Run:
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
    """Rows per second of the triggers behind the first ones; raises LoadError if there are none."""
    warm = progress[COLD_BATCHES:]
    if not warm:
        raise LoadError("there were too few micro-batches")
    milliseconds = sum(int(each["durationMs"]["triggerExecution"]) for each in warm)
    return 1e3 * sum(int(each["numInputRows"]) for each in warm) / milliseconds
