"""The contents of a stream and an archive, as Arrow tables in the order of sequences."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from natsd.spark.network.network_read import read_range
from natsd.spark.ranges import RangeRequest
from natsd.spark.wire.client import NatsClient
from tests.spark.failures.messages import expected, number_of
from tests.spark.serving import options

COLUMNS = ("seq", "subject", "time_ns", "headers", "data")


def in_stream(url: str, stream: str) -> pa.Table:
    connect = options(url)
    with NatsClient(connect) as client:
        state = client.api(f"STREAM.INFO.{stream}")["state"]
    request = RangeRequest(stream, state["first_seq"], state["last_seq"])
    return pa.Table.from_batches(read_range(connect, request, COLUMNS))


def count_in(client: NatsClient, stream: str) -> int:
    return int(client.api(f"STREAM.INFO.{stream}")["state"]["messages"])


def in_archive(directory: Path) -> pa.Table:
    """Return the archive's rows as a Delta reader without Spark reads them."""
    files = ds.dataset(DeltaTable(directory).file_uris(), format="parquet")
    return files.to_table(columns=list(COLUMNS)).sort_by("seq")


def in_table(directory: Path) -> pa.Table:
    """Return the rows of the files that Spark's file sink has committed to its log."""
    logs = [log for log in (directory / "_spark_metadata").iterdir() if log.name[0] != "."]
    lines = [line for log in logs for line in log.read_text().splitlines()[1:]]
    paths = {unquote(urlsplit(json.loads(line)["path"]).path) for line in lines}
    return ds.dataset(sorted(paths), format="parquet").to_table()


def archived_to(directory: Path, stream: str) -> int:
    """Return the last sequence of a stream that is in the archive; 0: none."""
    if not DeltaTable.is_deltatable(str(directory)):
        return 0
    return DeltaTable(directory).transaction_version(f"natsd archive {stream}") or 0


def header(held: pa.Table, name: str) -> pa.ChunkedArray:
    """Return all values of a header of each message; null if it has none."""
    return pc.map_lookup(held["headers"], pa.scalar(name), "first")


def check_once(held: pa.Table, prefix: str, count: int) -> None:
    """Check that messages 0 to `count` - 1 of messages.py are there once, as published."""
    numbers = number_of(held["data"])
    assert len(numbers) == count, f"{len(numbers)} messages instead of {count}"
    assert len(numbers.unique()) == count
    assert pc.min_max(numbers).as_py() == {"min": 0, "max": count - 1}
    assert held.select(["subject", "data"]).equals(expected(numbers, prefix).cast(TEXTS))


def check_order(held: pa.Table) -> None:
    """Check that the messages of each subject are in the order of publishing."""
    numbers = number_of(held["data"])
    table = pa.table({"subject": held["subject"], "at": held["seq"], "number": numbers})
    ordered = table.sort_by([("subject", "ascending"), ("at", "ascending")])
    again = ordered.sort_by([("subject", "ascending"), ("number", "ascending")])
    assert ordered.equals(again)


TEXTS = pa.schema([("subject", pa.string()), ("data", pa.binary())])
