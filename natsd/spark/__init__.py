"""natsd's streams as tables of Spark: `spark.read.format("jetstream")`, and the jobs made of it.

Spark finds the format by itself where natsd was installed from a wheel; `register(spark)` tells it
where that is not so (an editable install). Executors import this package: it stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Makes `format("jetstream")` known to the session."""
    from natsd.spark.source import JetStreamSource

    spark.dataSource.register(JetStreamSource)
