"""An archive's messages are published to a stream: natsd/spark/jobs/replay.py."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from natsd.spark.jobs.archive import archive
from natsd.spark.jobs.errors import JobError
from natsd.spark.jobs.replay import replay
from natsd.spark.wire.client import NatsClient
from tests.spark.jobs.test_archive import client_of, orders
from tests.spark.servers import JetStreamServer
from tests.spark.serving import create, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def archived(spark: SparkSession, server: JetStreamServer, name: str, table: Path) -> str:
    archive(spark, {"servers": server.url, "stream": name}, str(table))
    return str(table)


def rows_of(spark: SparkSession, server: JetStreamServer, name: str) -> list[Any]:
    source = spark.read.format("jetstream").options(servers=server.url, stream=name).load()
    return list(source.orderBy("seq").collect())


def messages_in(client: NatsClient, name: str) -> int:
    return int(client.api(f"STREAM.INFO.{name}")["state"]["messages"])


def test_messages_come_again_with_what_they_carried(
    spark: SparkSession, shared_server: JetStreamServer, tmp_path: Path
) -> None:
    with client_of(shared_server) as client:
        create(client, "R1", "r1.>")
        create(client, "R1B", "again.>")
        first = b"NATS/1.0\r\nNats-Msg-Id: a\r\nN: 1\r\nN: 2\r\n\r\n"
        publish(client, [("r1.eu", first, b"first"), *orders(2, 40, "r1")])
    table = archived(spark, shared_server, "R1", tmp_path / "t")
    target = {"servers": shared_server.url, "stream": "R1B"}

    done = replay(spark, table, target, mappings={"r1.*": "again.{{wildcard(1)}}.x"})

    assert (done.sent, done.there_before) == (40, 0)
    before, again = rows_of(spark, shared_server, "R1"), rows_of(spark, shared_server, "R1B")
    for subject in ("eu", "us"):
        sent = [row.data for row in before if row.subject == f"r1.{subject}"]
        assert [row.data for row in again if row.subject == f"again.{subject}.x"] == sent
    (one,) = (row for row in again if row.data == b"first")
    assert one.headers["N"] == ["1", "2"]
    assert one.headers["Nats-Original-Msg-Id"] == ["a"]
    assert one.headers["Nats-Original-Stream"] == ["R1"]
    assert one.headers["Nats-Original-Sequence"] == ["1"]
    ns = before[0].time_ns
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ns // 10**9))
    assert one.headers["Nats-Original-Time"] == [f"{text}.{ns % 10**9:09}Z"]


def test_what_is_there_is_not_sent_again(
    spark: SparkSession, shared_server: JetStreamServer, tmp_path: Path
) -> None:
    target = {"servers": shared_server.url, "stream": "R2B"}
    with client_of(shared_server) as client:
        create(client, "R2", "r2.>")
        create(client, "R2B", "b.>", duplicate_window=100_000_000)
        publish(client, orders(1, 30, "r2"))
        table = archived(spark, shared_server, "R2", tmp_path / "t")
        mappings = {"r2.>": "b.>"}

        assert replay(spark, table, target, mappings=mappings, where="seq <= 12").sent == 12
        rest = replay(spark, table, target, mappings=mappings)
        assert (rest.sent, rest.there_before) == (18, 12)
        assert replay(spark, table, target, mappings=mappings).sent == 0
        assert messages_in(client, "R2B") == 30


def test_a_dry_run_sends_nothing(
    spark: SparkSession, shared_server: JetStreamServer, tmp_path: Path
) -> None:
    with client_of(shared_server) as client:
        create(client, "R3", "r3.>")
        create(client, "R3B", "c.>")
        publish(client, orders(1, 9, "r3"))
        table = archived(spark, shared_server, "R3", tmp_path / "t")
        target = {"servers": shared_server.url, "stream": "R3B"}

        done = replay(spark, table, target, mappings={"*.*": "c.$2"}, subject="*.eu", is_dry=True)

        assert messages_in(client, "R3B") == 0
    assert (done.sent, done.subjects, done.is_dry) == (5, {"c.eu": 5}, True)
    assert "5 messages, 5 bytes of payload would be sent to R3B" in done.text()


def test_one_task_keeps_the_order_of_all_and_a_rate_its_pace(
    spark: SparkSession, shared_server: JetStreamServer, tmp_path: Path
) -> None:
    with client_of(shared_server) as client:
        create(client, "R4", "r4.>")
        create(client, "R4B", "d.>")
        publish(client, orders(1, 20, "r4"))
    table = archived(spark, shared_server, "R4", tmp_path / "t")
    target = {"servers": shared_server.url, "stream": "R4B"}

    replay(spark, table, target, mappings={"r4.>": "d.>"}, tasks=1, rate=40)

    again = rows_of(spark, shared_server, "R4B")
    assert [row.data for row in again] == [b"%d" % n for n in range(1, 21)]
    assert again[-1].time_ns - again[0].time_ns > 0.2e9  # 20 messages at 40 per second


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ({"r.*": "no.such"}, "no.such|no stream"),
        ({"a.*": "b.$2"}, "--map a.*=b.$2: invalid mapping destination"),
    ],
)
def test_why_it_cannot_is_one_line(
    spark: SparkSession,
    shared_server: JetStreamServer,
    tmp_path: Path,
    mapping: dict[str, str],
    said: str,
) -> None:
    rows = spark.range(1).selectExpr(
        "'S' stream", "id seq", "'r.a' subject", "0L time_ns",
        "cast(NULL AS map<string,array<string>>) headers", "cast('x' AS binary) data",
    )  # fmt: skip
    rows.write.parquet(str(tmp_path / "t"))
    with client_of(shared_server) as client:
        create(client, "R5", "r5.>")
    with pytest.raises(JobError) as refused:
        replay(
            spark,
            str(tmp_path / "t"),
            {"servers": shared_server.url, "stream": "R5"},
            mappings=mapping,
        )
    assert "\n" not in str(refused.value)
    assert any(part in str(refused.value) for part in said.split("|")), refused.value
