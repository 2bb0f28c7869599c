"""Jobs run in threads that did not make the session, as a scheduler runs them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from natsd.spark.jobs.archive import archive
from natsd.spark.jobs.replay import replay
from natsd.spark.jobs.transform import transform
from natsd.spark.wire.client import NatsClient
from tests.spark.servers import JetStreamServer
from tests.spark.serving import create, publish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Names = Callable[[], str]


def same(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("'copied' AS subject", "data")


def test_in_threads_of_their_own(
    spark: SparkSession,
    tmp_path: Path,
    shared_server: JetStreamServer,
    client: NatsClient,
    names: Names,
) -> None:
    source, target = names(), names()
    create(client, source, source)
    create(client, target, "copied", "again")
    publish(client, [(source, b"", b"one"), (source, b"", b"two")])
    server = {"servers": shared_server.url}
    into = {**server, "stream": target}
    table = str(tmp_path / "table")
    with ThreadPoolExecutor(1) as other:
        archived = other.submit(archive, spark, {**server, "stream": source}, table)
        assert archived.result().added == 2
    with ThreadPoolExecutor(1) as other:
        replayed = other.submit(replay, spark, table, into, mappings={source: "again"})
        assert replayed.result().sent == 2
    with ThreadPoolExecutor(1) as other:
        transformed = other.submit(
            transform,
            spark,
            {**server, "stream": source},
            same,
            checkpoint=str(tmp_path / "checkpoint"),
            into_stream=into,
        )
        assert transformed.result().read == 2
    assert client.api(f"STREAM.INFO.{target}")["state"]["messages"] == 4
