"""What Spark finds by itself: it imports each top-level package whose name begins with `pyspark_`.

A wheel carries this as the top-level package `pyspark_natsd`, so that `format("jetstream")` works
wherever natsd is installed.
"""

from natsd.spark.source import JetStreamSource as DefaultSource

__all__ = ["DefaultSource"]
