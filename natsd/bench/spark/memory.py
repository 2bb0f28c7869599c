"""The peak memory of a task's Python process, by the number of rows that it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from natsd.bench.jetstream.arms import JetStreamServer
from natsd.bench.spark.filling import fill
from natsd.bench.spark.processes import forget_peaks, peak_bytes
from natsd.bench.spark.reading import LARGE, counted, network
from natsd.bench.spark.scenario import Run, SparkScenario, Stage
from natsd.bench.wire import LoadError


@dataclass(frozen=True)
class ReaderMemory(SparkScenario):
    """A read of one partition for each of these counts; the value is the peak resident set.

    The resident set includes the memory that all workers share.
    """

    ours_only: ClassVar[bool] = True

    counts: tuple[int, ...]
    payload_bytes: int

    def prepare(self, stage: Stage, server: JetStreamServer) -> None:
        """Fill the stream."""
        fill(server, LARGE, max(self.counts), self.payload_bytes)

    def run(self, stage: Stage, server: JetStreamServer) -> Run:
        """Measure the peak memory in bytes for each count of rows."""
        return Run({str(count): float(self._peak(stage, server, count)) for count in self.counts})

    def _peak(self, stage: Stage, server: JetStreamServer, count: int) -> int:
        rows = network(stage, server, LARGE, count, minPartitions=1, maxRecordsPerPartition=count)
        forget_peaks()
        counted(stage, rows, count, self.payload_bytes, server)
        peak = peak_bytes()
        if peak is None:
            raise LoadError("this system does not tell the memory of processes")
        return peak
