"""`natsd pipeline transform`: a user's function or SQL between a stream and a stream or table.

    from natsd.spark.jobs.transform import transform
    transform(spark, {"stream": "ORDERS"}, lambda rows: rows.where("length(data) > 1000"),
              into_stream={"stream": "BIG"}, checkpoint="/data/big.checkpoint")

Promise
- The function takes the DataFrame of the source and returns the one to write; SQL reads the view
  `messages`. For a stream the result has the columns `subject` and `data`, and optionally `headers`
  and `id`, as in any write of the data source.
- The job is a streaming query with a checkpoint: finished batches are not repeated, and a killed
  job continues. Both sinks are exactly once: the data source's own, and Spark's file sink for
  tables.
- Without `follow` the job ends when it has processed the messages that the streams had at its
  start.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from natsd.spark.jobs.arguments import (
    add_connection,
    add_subject,
    add_trigger,
    connection_of,
    source_of,
)
from natsd.spark.jobs.errors import JobError, reason_of
from natsd.spark.jobs.progress import Advance, following, trigger_of
from natsd.spark.session import activate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Function = Callable[[DataFrame], DataFrame]

NAME: Final = "transform"
HELP: Final = "your own PySpark function or SQL between a stream and a stream or table"
VIEW: Final = "messages"


@dataclass(slots=True)
class Transformed:
    """Result of a transform: the messages read, the batches, and where the rows were written."""

    target: str
    read: int
    batches: int
    seconds: float

    exit_code = 0

    def text(self) -> str:
        """Return one line with the counts."""
        rate = f" ({self.read / self.seconds:,.0f}/s)" if self.seconds else ""
        batches = f"{self.batches:,} batch{'' if self.batches == 1 else 'es'}"
        return (
            f"{self.read:,} messages read in {batches}, {self.seconds:.1f} s{rate}; "
            f"written to {self.target}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


def transform(
    spark: SparkSession,
    source: Mapping[str, str],
    function: Function,
    *,
    checkpoint: str,
    into_stream: Mapping[str, str] | None = None,
    into_table: str | None = None,
    output_mode: str = "append",
    follow: bool = False,
    interval: str = "10 seconds",
    advance: Callable[[Advance], None] | None = None,
) -> Transformed:
    """Run a function over a stream, into a stream or a directory of Parquet files.

    `source` and `into_stream` are the data source's options; exactly one of `into_stream` and
    `into_table` is given. Blocks until the end. Raises JobError.
    """
    if (into_stream is None) == (into_table is None):
        raise JobError("transform: say where to, a stream or a table, and one of them only")
    began = time.monotonic()
    activate(spark)
    total = _Total(advance)
    try:
        options = {"startingOffsets": "earliest", **source}
        rows = function(spark.readStream.format("jetstream").options(**options).load())
        writer = rows.writeStream.outputMode(output_mode).option("checkpointLocation", checkpoint)
        if into_stream is not None:
            writer = writer.format("jetstream").options(**into_stream)
        else:
            writer = writer.format("parquet").option("path", into_table)
        writer = writer.queryName("natsd transform").trigger(**trigger_of(follow, interval))
        following(writer.start(), total)
    except Exception as error:
        raise JobError(f"transform: {reason_of(error)}") from error
    target = into_table if into_stream is None else into_stream.get("stream", "streams by subject")
    return Transformed(str(target), total.done, total.batches, time.monotonic() - began)


class _Total:
    """Sums of a query's progress reports."""

    def __init__(self, advance: Callable[[Advance], None] | None) -> None:
        self.done = 0
        self.batches = 0
        self._advance = advance

    def __call__(self, now: Advance) -> None:
        self.batches += now.done > self.done
        self.done = now.done
        if self._advance is not None:
            self._advance(now)


def sql_function(text: str) -> Function:
    """Return the function for a query over `messages`."""
    return partial(_query, text=text)


def _query(rows: DataFrame, text: str) -> DataFrame:
    rows.createOrReplaceTempView(VIEW)
    return rows.sparkSession.sql(text)


def load_function(name: str) -> Function:
    """Import the function named by `module:function` or `file.py:function`. Raises JobError."""
    module_name, colon, function_name = name.rpartition(":")
    if not colon:
        raise JobError(f"--function {name}: write it as module:function or file.py:function")
    try:
        if module_name.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(module_name).stem, module_name)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(module_name)
    except (ImportError, OSError, SyntaxError) as error:
        raise JobError(f"--function {name}: {error}") from None
    function = getattr(module, function_name, None)
    if not callable(function):
        raise JobError(f"--function {name}: there is no function of that name")
    found: Function = function
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--from", dest="source", required=True, metavar="STREAM", help="or several, by commas"
    )
    add_subject(parser)
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--to", metavar="STREAM", help="the stream to write to")
    to.add_argument("--table", metavar="DIR", help="the directory of Parquet files to write to")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument(
        "--sql",
        metavar="FILE",
        help="a query over the view 'messages'; - reads it from standard input",
    )
    how.add_argument(
        "--function", metavar="MODULE:NAME", help="a function of a DataFrame; file.py:name too"
    )
    parser.add_argument("--checkpoint", required=True, metavar="DIR", help="how far it is; keep it")
    parser.add_argument("--output-mode", choices=("append", "update", "complete"), default="append")
    add_trigger(parser)
    add_connection(parser)


def run(
    spark: SparkSession,
    arguments: argparse.Namespace,
    advance: Callable[[Advance], None] | None = None,
) -> Transformed:
    """Run the command. Raises JobError."""
    function = (
        load_function(arguments.function)
        if arguments.function
        else sql_function(_text(arguments.sql))
    )
    return transform(
        spark,
        source_of(arguments, arguments.source),
        function,
        checkpoint=arguments.checkpoint,
        into_stream={**connection_of(arguments), "stream": arguments.to} if arguments.to else None,
        into_table=arguments.table,
        output_mode=arguments.output_mode,
        follow=arguments.follow,
        interval=arguments.interval,
        advance=advance,
    )


def _text(path: str) -> str:
    try:
        return Path("/dev/stdin" if path == "-" else path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"--sql {path}: {error}") from None
