"""The input and output of one run of a Spark row: the session, the server, the values.

A row's first run on each server is not counted: it starts Python workers, and lets the JVM compile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from natsd.bench.jetstream.arms import JetStreamServer
from natsd.bench.spark.processes import CpuSeconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Stage:
    """The environment of all runs: one Spark session, and a directory for files."""

    spark: SparkSession
    place: Path
    first_read_seconds: float = 0.0
    """Seconds of the session's first read, which includes the start of its Python workers."""


@dataclass
class Run:
    """The result of one run; a `problem` makes it void."""

    values: dict[str, float] = field(default_factory=dict)
    cpu: CpuSeconds | None = None
    """CPU seconds for each row that was read; None: the system does not tell them."""
    problem: str = ""


class SparkScenario:
    """One kind of run. Scenarios are frozen dataclasses: rows with equal ones share the runs."""

    alone: ClassVar[bool] = False
    """Whether only Spark is measured, without any server."""
    ours_only: ClassVar[bool] = False
    """Whether only natsd is measured: other servers would show the same, or lack the feature."""
    needs: ClassVar[str] = ""
    """The package that the row needs; empty: none."""

    def prepare(self, stage: Stage, server: JetStreamServer) -> None:
        """Prepare the runs, before the first one; raises LoadError."""

    def run(self, stage: Stage, server: JetStreamServer) -> Run:
        """Run once; raises LoadError, OSError, and Spark's exceptions."""
        raise NotImplementedError

    def finish(self, stage: Stage, server: JetStreamServer) -> None:
        """Clean up after the last run, also if a run failed."""
