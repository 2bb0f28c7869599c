"""`natsd bench --spark`: the command checks for Spark and Java, measures and shows the rows."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from natsd.bench import plot, report
from natsd.bench.arms import ArmError
from natsd.bench.jetstream.arms import JetStreamArm, SyncSetting, jetstream_arms
from natsd.bench.machine import Machine, core_count
from natsd.bench.spark.measuring import Measuring
from natsd.bench.spark.results import (
    ALONE,
    SparkResult,
    as_json,
    growth_table,
    new_results,
    notes,
    table_rows,
)
from natsd.bench.spark.rows import QUICK, SparkRow, SparkScale, all_rows, select
from natsd.bench.spark.scenario import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 3
TASKS_MIN = 4
"""Number of tasks that can run at once, at least: rows compare four partitions with two and one.

It does not depend on the number of cores.
"""
SPARK = "pyspark"
ADVICE = {
    SPARK: "natsd bench: the Spark rows need pyspark and pyarrow: pip install natsd[spark]",
    "nats": "natsd bench: rows of nats-py are left out: pip install nats-py",
}
CONFIGURATION = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.log.level": "ERROR",
}


def run_spark(options: argparse.Namespace) -> int:
    """Measure the rows that can be measured here and return the exit status.

    If Spark or Java is missing, that is one line on standard error and no failure.
    """
    if options.connect or options.cores or options.pin:
        raise ArmError("--spark starts the servers itself, on all cores")
    rows = select(all_rows(QUICK if options.quick else SparkScale()), options.row)
    if not rows:
        raise ArmError("no row matches; --list shows them")
    if options.list:
        texts = [[row.key, row.title, row.goal_text] for row in rows]
        report.print_table(["key", "row", "goal"], texts, sys.stdout)
        return 0
    arms = jetstream_arms([options.server, *options.vs], SyncSetting.DEFAULT, options.directory)
    if not there(SPARK) or not java_there():
        return 0
    return measure(options, arms, [row for row in rows if can_run(row, rows)])


def there(package: str) -> bool:
    """Return whether the package is installed; if not, print how to install it."""
    if importlib.util.find_spec(package) is not None:
        return True
    sys.stderr.write(f"{ADVICE[package]}\n")
    return False


def java_there() -> bool:
    """Return whether Java is installed; if not, print how to install it."""
    from natsd.spark.java import JavaMissing, ensure_java

    try:
        ensure_java()
    except JavaMissing as error:
        sys.stderr.write(f"natsd bench: {error}\n")
        return False
    return True


def can_run(row: SparkRow, rows: Sequence[SparkRow]) -> bool:
    """Return whether the package that the row needs is installed.

    A missing package is reported only once, for the first row that needs it.
    """
    needs = row.scenario.needs
    if not needs or importlib.util.find_spec(needs) is not None:
        return True
    return row is next(each for each in rows if each.scenario.needs == needs) and there(needs)


def measure(
    options: argparse.Namespace, arms: Sequence[JetStreamArm], rows: Sequence[SparkRow]
) -> int:
    """Measure the rows, show them, and return the exit status."""
    status, machine = report.Status(), Machine.here_and_now()
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    results = new_results(rows, len(arms) + 1)
    with (
        tempfile.TemporaryDirectory(prefix="natsd-bench-", dir=options.directory) as place,
        session(Path(place)) as spark,
    ):
        stage = Stage(spark, Path(place))
        measuring = Measuring(stage, arms, rounds, status)
        measuring.run(results)
        how = f"Spark {spark.version}, {spark.sparkContext.master}; medians of {rounds} round(s)"
    status.clear()
    show(
        options, machine, f"{how}; first read {stage.first_read_seconds:.1f} s", measuring, results
    )
    return 1 if options.check and any(result.misses_goal for result in results) else 0


def show(
    options: argparse.Namespace,
    machine: Machine,
    how: str,
    measuring: Measuring,
    results: Sequence[SparkResult],
) -> None:
    """Print header, tables and notes; then write the JSON and SVG files that the options name."""
    labels, goals = [*measuring.labels, ALONE], options.goals or options.check
    sys.stdout.write(f"{machine}\n{how}\n")
    if rows := table_rows(results, len(labels), goals=goals):
        head = ["", *labels, "ratio", *(["goal"] if goals else [])]
        report.print_table(head, rows, sys.stdout)
    head, rows = growth_table(results)
    if rows:
        report.print_table(head, rows, sys.stdout)
    sys.stdout.write("".join(f"{line}\n" for line in notes(results, labels)))
    if options.json:
        saved = {
            "machine": asdict(machine),
            "how": how,
            "rounds": measuring.rounds,
            "servers": labels,
            "rows": as_json(results, labels),
        }
        report.write_json(options.json, saved)
    if options.plot:
        plot.write_svg(options.plot, "Spark rows, times their goals", str(machine), results)


@contextlib.contextmanager
def session(place: Path) -> Iterator[SparkSession]:
    """Start a Spark session like those of natsd's jobs, with its files in `place`.

    The session and its JVM end with the `with`.
    """
    from natsd.spark.session import end, make_session

    configuration = {
        **CONFIGURATION,
        "spark.local.dir": str(place / "local"),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
    }
    master = f"local[{max(TASKS_MIN, core_count())}]"
    spark = make_session(master, "natsd bench", configuration)
    try:
        yield spark
    finally:
        end(spark)
