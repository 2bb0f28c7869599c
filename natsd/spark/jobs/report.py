"""`natsd pipeline report`: rates, sizes, subjects, gaps and latency of streams as one HTML page.

    from natsd.spark.jobs.report import report
    report(spark, rows, "orders.html", title="ORDERS", csv="numbers/")

Promise
- The rows may come from streams, a store directory, or an archive.
- The page is self-contained (report_page.py); its numbers can be written as CSV or Parquet too, one
  file for each table.
- Files are written under another name and renamed: a reader finds the old or the new file.
"""

from __future__ import annotations

import argparse
import csv as csv_format
import datetime as dt
import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from natsd.spark.jobs.archive import ARCHIVED_AT, read_archive
from natsd.spark.jobs.arguments import (
    add_connection,
    add_storage,
    add_subject,
    source_of,
    storage_of,
)
from natsd.spark.jobs.errors import JobError, reason_of
from natsd.spark.jobs.progress import Advance, shown_bytes
from natsd.spark.jobs.report_page import page
from natsd.spark.jobs.stream_numbers import Numbers, Rows, compute

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NAME: Final = "report"
HELP: Final = "rates, sizes, subjects, gaps and latency of streams as one HTML page"
TOP_SUBJECTS: Final = 50


@dataclass(slots=True)
class Reported:
    """Result of a report: the path of the page, and its numbers."""

    page: str
    numbers: Numbers
    seconds: float

    exit_code = 0

    def text(self) -> str:
        """Return a line for each stream, and one for the page."""
        lines = [
            f"{row['stream']}: {row['messages']:,} messages, {shown_bytes(row['bytes'] or 0)}, "
            f"about {row['subjects']:,} subjects, {row['missing']:,} sequences missing"
            for row in self.numbers.totals
        ]
        return "\n".join([*lines, f"{self.page} ({self.seconds:.1f} s)"])

    def as_json(self) -> dict[str, Any]:
        """Return the tables as plain values, and the path of the page."""
        tables = {name: _plain(rows) for name, rows in self.numbers.tables().items()}
        return {
            "page": self.page,
            "window": self.numbers.window,
            "latency": self.numbers.latency,
            "seconds": self.seconds,
            **tables,
        }


def report(
    rows: DataFrame,
    path: str | Path,
    *,
    title: str,
    source: str = "",
    window: str | None = None,
    top: int = TOP_SUBJECTS,
    sent_header: str | None = None,
    csv: str | Path | None = None,
    parquet: str | Path | None = None,
) -> Reported:
    """Write the page of these rows, which have the data source's columns.

    `window` is a Spark interval like "1 hour"; None: one that fits. `top` is the number of listed
    subjects. `sent_header` names the header with the publisher's time (RFC 3339, or milliseconds
    since 1970): latency is from that time to the time the server stored the message. `csv` and
    `parquet` are directories for the numbers. Blocks until the end. Raises JobError.
    """
    began = time.monotonic()
    try:
        numbers = compute(rows, window=window, top=top, latency=_latency(rows, sent_header))
    except Exception as error:
        raise JobError(f"report: {reason_of(error)}") from error
    made_at = dt.datetime.now(dt.UTC).strftime("made %Y-%m-%d %H:%M:%S UTC")
    try:
        _replace(Path(path), page(title, source or title, numbers, made_at).encode())
        for name, table in numbers.tables().items():
            if csv is not None:
                _write_csv(Path(csv) / f"{name}.csv", table)
            if parquet is not None:
                _write_parquet(Path(parquet) / f"{name}.parquet", table)
    except OSError as error:
        raise JobError(f"report: {error.filename}: {error.strerror}") from None
    return Reported(str(path), numbers, time.monotonic() - began)


def _latency(rows: DataFrame, sent_header: str | None) -> tuple[str, Column] | None:
    from pyspark.sql import functions as F

    if sent_header is not None:
        text = F.col("headers")[sent_header][0]
        millis = F.timestamp_millis(text.try_cast("bigint"))
        sent = F.coalesce(millis, text.try_cast("timestamp"))
        return f"from {sent_header} to stored", _ms(F.col("time")) - _ms(sent)
    if ARCHIVED_AT in rows.columns:
        return "from stored to archived", _ms(F.col(ARCHIVED_AT)) - _ms(F.col("time"))
    return None


def _ms(time_column: Column) -> Column:
    from pyspark.sql import functions as F

    return F.unix_micros(time_column) / 1000.0


def _plain(rows: Rows) -> Rows:
    return [{name: _plain_value(value) for name, value in row.items()} for row in rows]


def _plain_value(value: Any) -> Any:
    return value.isoformat() if isinstance(value, dt.datetime) else value


def _write_csv(path: Path, rows: Rows) -> None:
    text = io.StringIO()
    if rows:
        writer = csv_format.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(_plain(rows))
    _replace(path, text.getvalue().encode())


def _write_parquet(path: Path, rows: Rows) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    out = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pylist(rows), out)
    _replace(path, out.getvalue().to_pybytes())


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_bytes(data)
    unfinished.replace(path)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "what", metavar="STREAM|TABLE", help="streams by commas; or with --archive a table"
    )
    parser.add_argument("page", metavar="PAGE", help="the HTML file to write")
    parser.add_argument("--archive", action="store_true", help="the rows are those of an archive")
    parser.add_argument("--store", metavar="DIR", help="read a store directory, not a server")
    add_subject(parser)
    parser.add_argument(
        "--window", metavar="INTERVAL", help="like '1 hour'; by default one that fits"
    )
    parser.add_argument("--top", type=int, default=TOP_SUBJECTS, metavar="N", help="subjects shown")
    parser.add_argument(
        "--sent-header", metavar="NAME", help="header with the publisher's time, for latency"
    )
    parser.add_argument("--title")
    parser.add_argument("--csv", metavar="DIR", help="the numbers as CSV")
    parser.add_argument("--parquet", metavar="DIR", help="the numbers as Parquet")
    add_storage(parser)
    add_connection(parser)


def run(
    spark: SparkSession,
    arguments: argparse.Namespace,
    advance: Callable[[Advance], None] | None = None,
) -> Reported:
    """Run the command. Raises JobError."""
    return report(
        _rows(spark, arguments),
        arguments.page,
        title=arguments.title or arguments.what,
        source=_source(arguments),
        window=arguments.window,
        top=arguments.top,
        sent_header=arguments.sent_header,
        csv=arguments.csv,
        parquet=arguments.parquet,
    )


def _rows(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    if arguments.archive:
        return read_archive(spark, arguments.what, storage_of(arguments))
    options = source_of(arguments, arguments.what)
    if arguments.store:
        options["storeDir"] = arguments.store
    return spark.read.format("jetstream").options(**options).load()


def _source(arguments: argparse.Namespace) -> str:
    if arguments.archive:
        return f"archive {arguments.what}"
    where = arguments.store or arguments.server or "nats://127.0.0.1:4222"
    return f"{arguments.what} of {where.rpartition('@')[2]}"
