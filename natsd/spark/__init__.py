"""Spark support of natsd: `spark.read.format("jetstream")`, and the jobs built on it.

Spark discovers the format where natsd was installed from a wheel; `register(spark)` registers it
where discovery does not work (an editable install). Of natsd's other packages, this one imports
only `core` and `store`. Executors import it too, so heavy packages (pyarrow, pyspark, pydantic) are
imported only where they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from natsd.spark.lag import LagListener as LagListener

__all__ = ["LagListener", "register"]


def register(spark: SparkSession) -> None:
    """Register `format("jetstream")` with the session."""
    from natsd.spark.source import JetStreamSource

    spark.dataSource.register(JetStreamSource)


def __getattr__(name: str) -> Any:
    if name == "LagListener":  # imported when first used: it imports pyspark
        from natsd.spark.lag import LagListener

        return LagListener
    raise AttributeError(f"module 'natsd.spark' has no attribute {name!r}")
