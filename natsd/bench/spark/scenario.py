"""What one run of a Spark row needs and gives: the session, the server, the numbers.

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
    """Where runs take place: one session for all of them, and a directory for their files."""

    spark: SparkSession
    place: Path
    first_read_seconds: float = 0.0
    """Of the session's first read, with the start of its Python workers."""


@dataclass
class Run:
    """What one run gave; `problem` makes it void."""

    values: dict[str, float] = field(default_factory=dict)
    cpu: CpuSeconds | None = None
    """For each row of it, where the system tells."""
    problem: str = ""


class SparkScenario:
    """One kind of run. Frozen dataclasses: rows that are equal in it share its runs."""

    alone: ClassVar[bool] = False
    """Spark alone: no server takes part in what is measured."""
    ours_only: ClassVar[bool] = False
    """Of natsd: other servers would show nothing else, or have no such thing."""
    needs: ClassVar[str] = ""
    """A package without which there is no such row."""

    def prepare(self, stage: Stage, server: JetStreamServer) -> None:
        """Before the first run; raises LoadError."""

    def run(self, stage: Stage, server: JetStreamServer) -> Run:
        """Raises LoadError, OSError, and what Spark raises."""
        raise NotImplementedError

    def finish(self, stage: Stage, server: JetStreamServer) -> None:
        """After the last run, whatever happened."""
