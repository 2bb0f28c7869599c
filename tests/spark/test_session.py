"""Spark's Python processes import natsd from the wheel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.source.reading import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_executors_import_the_wheel(spark: SparkSession) -> None:
    def where(_: int) -> str:
        import natsd

        return natsd.__file__

    found = spark.sparkContext.parallelize([1], 1).map(where).collect()
    assert "/site/natsd/" in found[0]
    assert not found[0].startswith(str(ROOT))


def test_the_format_is_found_by_itself(spark: SparkSession) -> None:
    schema = spark.read.format("jetstream").option("stream", "ORDERS").load().schema
    assert schema.fieldNames()[:2] == ["stream", "seq"]
