"""natsd's streams as tables of Spark: `spark.read.format("jetstream")`, and the jobs made of it.

Spark finds the format by itself where natsd was installed from a wheel; `register(spark)` tells
it where that is not so (an editable install). It stands beside the house and imports `core` and
`store` only. Executors import it, so that what is heavy (pyarrow, pyspark, pydantic) is imported
where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from natsd.spark.lag import LagListener as LagListener

__all__ = ["LagListener", "register"]


def register(spark: SparkSession) -> None:
    """Makes `format("jetstream")` known to the session."""
    from natsd.spark.source import JetStreamSource

    spark.dataSource.register(JetStreamSource)


def __getattr__(name: str) -> Any:
    if name == "LagListener":  # imported when first used: it imports pyspark
        from natsd.spark.lag import LagListener

        return LagListener
    raise AttributeError(f"module 'natsd.spark' has no attribute {name!r}")
