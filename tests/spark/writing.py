"""Shared parts of the tests of writes: batches of rows, tasks, and a stream's contents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from natsd.spark.network.network_read import read_range
from natsd.spark.ranges import RangeRequest
from natsd.spark.sink.begin_records import WriteJob
from natsd.spark.sink.write_task import Task, WriteOptions
from natsd.spark.sink.written_columns import WrittenColumns
from natsd.spark.wire.client import NatsClient
from natsd.spark.wire.connecting import ClientOptions

HEADERS = pa.map_(pa.string(), pa.list_(pa.string()))
SCHEMA = pa.schema([("subject", pa.string()), ("data", pa.binary()), ("headers", HEADERS)])
PLAIN = WrittenColumns(subject=0, data=1, headers=2)
BY_ID = WrittenColumns(subject=0, data=1, headers=2, id=3)


def batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Return a batch of rows (subject, data[, headers[, id]])."""
    names = ["subject", "data", "headers", "id"]
    kinds = [pa.string(), pa.binary(), HEADERS, pa.string()]
    width = max(3, *(len(row) for row in rows)) if rows else 3
    columns = [
        pa.array([row[at] if at < len(row) else None for row in rows], kinds[at])
        for at in range(width)
    ]
    return pa.RecordBatch.from_arrays(columns, names[:width])


def batches(rows: Sequence[tuple[Any, ...]], size: int = 10) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(rows), size):
        yield batch(rows[at : at + size])


def numbered(count: int, subject: str = "orders.{}") -> list[tuple[str, bytes]]:
    return [(subject.format(at % 5), b"row %d" % at) for at in range(count)]


def task(
    version: int = 0, partition: int = 0, attempt: int = 0, run: str = "one", application: str = "q"
) -> Task:
    return Task(WriteJob(application, version), partition, attempt, run)


def writing(connect: ClientOptions, **settings: Any) -> WriteOptions:
    """Return options with short leases, so that waits for a lease are short."""
    return WriteOptions(connect, **{"lease_s": 0.5, "ack_timeout_s": 5.0, **settings})


def stored(client: NatsClient, stream: str) -> list[tuple[str, bytes]]:
    """Return subject and data of each message, in the stream's order."""
    last = client.api(f"STREAM.INFO.{stream}")["state"]["last_seq"]
    request = RangeRequest(stream, 1, last)
    found: list[tuple[str, bytes]] = []
    for part in read_range(client.options, request, ("subject", "data")) if last else ():
        found += zip(part["subject"].to_pylist(), part["data"].to_pylist(), strict=True)
    return found
