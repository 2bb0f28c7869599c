"""Streams are written to a Delta table, each message once: natsd/spark/jobs/archive.py."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from natsd.spark.jobs.archive import archive, read_archive
from natsd.spark.jobs.delta_log import DeltaLog, StreamRange
from natsd.spark.jobs.errors import JobError
from natsd.spark.jobs.progress import Advance
from natsd.spark.wire.client import NatsClient
from natsd.spark.wire.connecting import ClientOptions
from tests.spark.servers import JetStreamServer
from tests.spark.serving import create, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def client_of(server: JetStreamServer) -> NatsClient:
    return NatsClient(ClientOptions(servers=(server.url,)))


def orders(first: int, last: int, subject: str = "orders") -> list[tuple[str, bytes, bytes]]:
    return [
        (f"{subject}.{'eu' if n % 2 else 'us'}", b"NATS/1.0\r\nN: %d\r\n\r\n" % n, b"%d" % n)
        for n in range(first, last + 1)
    ]


def test_a_run_adds_what_is_new(
    spark: SparkSession, shared_server: JetStreamServer, tmp_path: Path
) -> None:
    source = {"servers": shared_server.url, "stream": "A1"}
    table = str(tmp_path / "t")
    told: list[Advance] = []
    with client_of(shared_server) as client:
        create(client, "A1", "a1.>")
        publish(client, orders(1, 50, "a1"))
        first = archive(spark, source, table, tokens={"region": 2}, advance=told.append)
        publish(client, orders(51, 60, "a1"))
        second = archive(spark, source, table, tokens={"region": 2})
        third = archive(spark, source, table, tokens={"region": 2})

    assert first.streams == {"A1": StreamRange(1, 50, 50)}
    assert told[-1] == Advance(50, 0)
    assert second.streams == {"A1": StreamRange(51, 60, 10)}
    assert (third.added, third.rows) == (0, 60)
    rows = read_archive(spark, table).orderBy("seq").collect()
    assert [row.seq for row in rows] == list(range(1, 61))
    assert [row.data for row in rows] == [b"%d" % n for n in range(1, 61)]
    assert rows[6].headers == {"N": ["7"]}
    assert {row.region for row in rows} == {"eu", "us"}
    assert all(row.archived_at >= row.time for row in rows)
    assert "A1: 10 messages, sequences 51 to 60" in second.text()
    assert second.as_json()["streams"] == {"A1": {"first": 51, "last": 60, "rows": 10}}


def test_a_table_goes_on_without_its_checkpoint(
    spark: SparkSession, shared_server: JetStreamServer, tmp_path: Path
) -> None:
    source = {"servers": shared_server.url, "stream": "A2"}
    with client_of(shared_server) as client:
        create(client, "A2", "a2.>")
        publish(client, orders(1, 20, "a2"))
        archive(spark, source, str(tmp_path / "t"))
        shutil.rmtree(tmp_path / "t" / "_natsd" / "checkpoint")
        publish(client, orders(21, 30, "a2"))
        done = archive(spark, source, str(tmp_path / "t"))

    assert done.streams == {"A2": StreamRange(21, 30, 10)}
    found = spark.read.parquet(str(tmp_path / "t")).select("seq").collect()
    assert sorted(row.seq for row in found) == list(range(1, 31))


def test_a_stopped_query_ends_with_the_batch_that_it_adds(
    spark: SparkSession,
    shared_server: JetStreamServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The query is stopped when the batch is about to be committed."""
    source = {"servers": shared_server.url, "stream": "A9"}
    add = DeltaLog.add

    def stop_and_add(*given: Any) -> None:
        for query in spark.streams.active:
            with contextlib.suppress(Exception):  # the calling thread itself is interrupted
                query.stop()
        add(*given)

    monkeypatch.setattr(DeltaLog, "add", stop_and_add)
    with client_of(shared_server) as client:
        create(client, "A9", "a9.>")
        publish(client, orders(1, 20, "a9"))
        done = archive(spark, source, str(tmp_path / "t"), follow=True)

    assert done.streams == {"A9": StreamRange(1, 20, 20)}
    assert spark.read.parquet(str(tmp_path / "t")).count() == 20


def test_batches_and_several_streams(
    spark: SparkSession, shared_server: JetStreamServer, tmp_path: Path
) -> None:
    source = {"servers": shared_server.url, "streams": "A3,A4", "maxMsgsPerTrigger": "20"}
    with client_of(shared_server) as client:
        for name in ("A3", "A4"):
            create(client, name, f"{name.lower()}.>")
            publish(client, orders(1, 30, name.lower()))
        done = archive(spark, source, str(tmp_path / "t"))

    assert done.streams == {"A3": StreamRange(1, 30, 30), "A4": StreamRange(1, 30, 30)}
    assert done.compacted > 0
    assert read_archive(spark, str(tmp_path / "t")).select("stream", "seq").distinct().count() == 60


def test_why_it_cannot_go_on_is_one_line(
    spark: SparkSession, shared_server: JetStreamServer, tmp_path: Path
) -> None:
    source = {"servers": shared_server.url, "stream": "NO_SUCH"}
    with pytest.raises(JobError, match="NO_SUCH") as refused:
        archive(spark, source, str(tmp_path / "t"))
    assert "\n" not in str(refused.value)
    with client_of(shared_server) as client:
        create(client, "A5", "a5.>")
        publish(client, orders(1, 3, "a5"))
    source["stream"] = "A5"  # an error in the name does not occupy the directory
    assert archive(spark, source, str(tmp_path / "t"), tokens={"region": 2}).rows == 3
    assert str(refused.value).startswith(f"file:{tmp_path / 't'}: ")
