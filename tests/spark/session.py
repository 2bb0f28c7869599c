"""One SparkSession for a test run, whose Python processes import natsd from the wheel.

Spark does not find data sources in editable installs, and users have a wheel. So a wheel is built
of the compiled modules, installed into a directory, and only that directory is on the path of
Spark's own Python processes. The tests themselves run from the sources.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import natsd
from natsd.spark.java import ensure_java
from natsd.spark.session import end
from tests.source.reading import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "512m",
    # Deep recursion: Spark searches Python's error texts for an interruption with a regex.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Xss8m -XX:TieredStopAtLevel=1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.sql.streaming.noDataProgressEventInterval": "100ms",
    "spark.log.level": "ERROR",
}


def build_wheel(directory: Path) -> Path:
    """Build a wheel of the compiled modules and return its path."""
    compiled = Path(natsd.__file__).parent.parent
    packing = [sys.executable, str(ROOT / ".ci" / "build.py"), "packed", str(directory)]
    subprocess.run(packing, check=True, env={**os.environ, "NATSD_COMPILED": str(compiled)})
    (wheel,) = directory.glob("*.whl")
    return wheel


def install_wheel(wheel: Path, site: Path) -> Path:
    """Install natsd and pyspark_natsd into the directory `site` and return it."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run(
        [*pip, "--no-deps", "--no-index", "--no-compile", "--target", str(site), str(wheel)],
        check=True,
    )
    return site


@contextlib.contextmanager
def spark_session(directory: Path, site: Path) -> Iterator[SparkSession]:
    spark = start(directory, site)
    try:
        yield spark
    finally:
        end(spark)


def start(directory: Path, site: Path) -> SparkSession:
    """Start a session; the JVM passes the environment of its start to Spark's Python processes."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(site))
        environment.setenv("PYTHONSAFEPATH", "1")  # they start in this directory, which is no wheel
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        environment.setenv("SPARK_LOCAL_DIRS", str(directory / "local"))
        ensure_java()
        from pyspark.sql import SparkSession

        building = SparkSession.builder.master("local[2]").appName("natsd's tests")
        for name, value in SETTINGS.items():
            building = building.config(name, value)
        building = building.config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        return building.getOrCreate()
