"""A SparkSession for natsd's own jobs: the same Python everywhere, and a Java that is there.

A session that exists already is taken as it is; what is set here is for a new one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from natsd.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_TIMEOUT_S: Final = 30
LOGGING: Final = Path(__file__).with_name("log4j2.properties")
DEFAULTS: Final[Mapping[str, str]] = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Spark looks through the long texts of Python's errors with a pattern that recurses.
    "spark.driver.extraJavaOptions": f"-Xss8m -Dlog4j2.configurationFile={LOGGING.as_uri()}",
}


def make_session(
    master: str = "local[*]",
    name: str = "natsd",
    configuration: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session, with the data source registered. Raises JavaMissing."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    ensure_java()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    settings = {**DEFAULTS, **(configuration or {})}
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(settings["spark.log.level"])
    from natsd.spark import register

    register(spark)
    return spark


def end(spark: SparkSession) -> None:
    """Stop the session and its JVM, which would stay until this process ends."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(END_TIMEOUT_S)
        SparkContext._gateway = SparkContext._jvm = None


def activate(spark: SparkSession) -> None:
    """Make it the session of this thread, in which Spark looks for the format of a write.

    Without it, a write to a data source of Python's fails in any thread but that of the session.
    """
    jvm: Any = getattr(spark, "_jvm", None)  # none in a Spark Connect session, which needs no help
    if jvm is not None:
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
