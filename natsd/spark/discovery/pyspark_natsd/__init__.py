"""The package by which Spark discovers natsd's data source.

PySpark imports each top-level package whose name begins with `pyspark_` and registers its
`DefaultSource`. A wheel carries this file as the top-level package `pyspark_natsd`, so
`format("jetstream")` works wherever natsd is installed.
"""

from natsd.spark.source import JetStreamSource as DefaultSource

__all__ = ["DefaultSource"]
