"""A SparkSession for natsd's own jobs, with this Python interpreter and a Java runtime that works.

An existing session is used as it is; the settings here apply to a new one.
"""

from __future__ import annotations

import os
import shutil
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
    # Spark matches a recursive regular expression against the long texts of Python errors
    # (`StreamExecution.isInterruptionException`), which overflows the default thread stack.
    "spark.driver.extraJavaOptions": f"-Xss8m -Dlog4j2.configurationFile={LOGGING.as_uri()}",
}


class PythonMissing(RuntimeError):
    """The driver does not have the Python that PYSPARK_PYTHON names; the text says what to do."""


def make_session(
    master: str | None = None,
    name: str = "natsd",
    configuration: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session in which the data source is registered.

    `master` None: the one of Spark's configuration (spark-submit, spark-defaults.conf, the variable
    MASTER), else `local[*]`. `configuration` overrides DEFAULTS. Raises JavaMissing, PythonMissing.
    """
    python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if shutil.which(python) is None:
        raise PythonMissing(
            f"PYSPARK_PYTHON is {python}, and this machine has none: Spark plans reads and writes "
            "with it on the driver, too; unpack the archive of the Python environment here as well"
        )
    ensure_java()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    settings = {**DEFAULTS, **({"spark.master": master} if master else {}), **(configuration or {})}
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(settings["spark.log.level"])
    from natsd.spark import register

    register(spark)
    return spark


def end(spark: SparkSession) -> None:
    """Stop the session and its JVM, which would otherwise run until this process ends."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(END_TIMEOUT_S)
        SparkContext._gateway = SparkContext._jvm = None


def activate(spark: SparkSession) -> None:
    """Make the session the active one of this thread.

    Spark looks up the format of a write in the thread's active session. Without this call, a write
    to a Python data source fails in every thread except the one that created the session.
    """
    jvm: Any = getattr(spark, "_jvm", None)  # None in Spark Connect, which needs no help
    if jvm is not None:
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
