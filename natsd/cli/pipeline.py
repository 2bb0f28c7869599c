"""`natsd pipeline JOB …`: Spark jobs that archive, replay, audit, report and transform streams.

- Each job is a module of natsd.spark.jobs with NAME, HELP, `add_arguments` and `run`, which takes a
  SparkSession; programs can call `run` as well.
- Standard output contains only the summary, or with `--json` one JSON object. Progress and the
  output of Spark's start go to standard error. After its start Spark logs nothing, since its errors
  are pages long: one line gives the reason of an error. `--conf spark.log.level=ERROR` shows all.
- Exit code 0: done; 1: done, and the job found something (audit); 2: refused, or stopped by Ctrl-C
  or SIGTERM, with one line that says so.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Final

from natsd.cli.commands import command_parser
from natsd.cli.interruption import Interruption
from natsd.spark.java import JavaMissing
from natsd.spark.jobs import archive, audit, replay, report, transform
from natsd.spark.jobs.arguments import pairs
from natsd.spark.jobs.errors import JobError, reason_of
from natsd.spark.jobs.outcome import Outcome
from natsd.spark.session import PythonMissing, make_session

if TYPE_CHECKING:
    from natsd.spark.jobs.progress import Advance

JOBS: Final[Sequence[ModuleType]] = (archive, replay, audit, report, transform)
REFUSED: Final = 2
NO_SPARK: Final = "natsd pipeline needs PySpark; install it: pip install 'natsd[spark]'"

EXAMPLES: Final = """\
examples:
  natsd pipeline archive ORDERS /data/orders --token region=2
  natsd pipeline replay /data/orders --stream ORDERS_AGAIN --map 'orders.>=again.orders.>'
  natsd pipeline audit /var/lib/nats/jetstream --stream ORDERS
  natsd pipeline report ORDERS orders.html --window '1 hour'
  natsd pipeline transform --from ORDERS --to BIG --sql big.sql
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command with the arguments after `pipeline`; return the exit code."""
    given = parser().parse_args(arguments)
    try:
        outcome = _run(given)
    except JobError as error:
        print(f"natsd pipeline {given.job}: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print(f"natsd pipeline {given.job}: stopped; run it again to go on", file=sys.stderr)
        return REFUSED
    print(json.dumps(outcome.as_json(), indent=2) if given.json else outcome.text())
    return outcome.exit_code


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    text = "Jobs over streams, on Spark: on this machine, or on a cluster with --master."
    result = command_parser("natsd pipeline", text, EXAMPLES)
    jobs = result.add_subparsers(dest="job", required=True, metavar="JOB")
    for module in JOBS:
        job = jobs.add_parser(module.NAME, help=module.HELP, description=module.HELP)
        module.add_arguments(job)
        spark = job.add_argument_group("spark")
        spark.add_argument(
            "--master", help="Spark's master (that of Spark's settings, or local[*])"
        )
        spark.add_argument(
            "--conf",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="Spark's configuration",
        )
        job.add_argument("--json", action="store_true", help="print one JSON object")
        job.set_defaults(module=module)
    return result


def _run(given: argparse.Namespace) -> Outcome:
    """Run a job in a new Spark session. Raises JobError, or KeyboardInterrupt after a signal."""
    configuration = {"spark.log.level": "OFF", **pairs(given.conf, "--conf")}
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        spark = make_session(given.master, f"natsd pipeline {given.job}", configuration)
    except ImportError:
        raise JobError(NO_SPARK) from None
    except (JavaMissing, PythonMissing) as error:
        raise JobError(str(error)) from None
    try:
        with Interruption.by_signals(spark) as interruption, _progress(given.job) as advance:
            try:
                outcome: Outcome = given.module.run(spark, given, advance)
            except (JobError, PySparkException, Py4JError, OSError) as error:
                if interruption.is_asked:
                    raise KeyboardInterrupt from None
                raise JobError(reason_of(error)) from error
            if interruption.is_asked:
                raise KeyboardInterrupt
        return outcome
    finally:
        spark.stop()


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Callable[["Advance"], None] | None]:
    """Show a progress bar if standard error is a terminal; yield its update function or None."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=None)

        def advance(now: "Advance") -> None:
            bar.update(task, completed=now.done, total=now.done + now.waiting)

        yield advance
