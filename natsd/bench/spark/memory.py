"""The most memory that a task's Python process had, by how much it read."""

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
    """One partition, of each of these sizes; its resident set, with what all workers share."""

    ours_only: ClassVar[bool] = True

    counts: tuple[int, ...]
    payload_bytes: int

    def prepare(self, stage: Stage, server: JetStreamServer) -> None:
        fill(server, LARGE, max(self.counts), self.payload_bytes)

    def run(self, stage: Stage, server: JetStreamServer) -> Run:
        return Run({str(count): float(self._peak(stage, server, count)) for count in self.counts})

    def _peak(self, stage: Stage, server: JetStreamServer, count: int) -> int:
        rows = network(stage, server, LARGE, count, minPartitions=1, maxRecordsPerPartition=count)
        forget_peaks()
        counted(stage, rows, count, self.payload_bytes, server)
        peak = peak_bytes()
        if peak is None:
            raise LoadError("this system does not tell the memory of processes")
        return peak
