"""The format `jetstream`: what Spark asks of it, and which file answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class JetStreamSource(DataSource):
    """`spark.read.format("jetstream")` and its like for streams and for writing."""

    @classmethod
    def name(cls) -> str:
        return "jetstream"

    def schema(self) -> StructType | str:
        return "stream STRING, seq BIGINT"
