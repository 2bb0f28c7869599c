"""`spark.readStream.format("jetstream")`: restarts, limits and losses, against real servers."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from natsd.spark import LagListener
from natsd.spark.wire.client import NatsClient
from tests.spark.servers import JetStreamServer
from tests.spark.serving import create, options, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

Names = Callable[[], str]
DEADLINE_S = 60.0


class Job:
    """A query from streams into Parquet, which can be run repeatedly."""

    def __init__(self, spark: SparkSession, directory: Path, url: str, **options: str) -> None:
        self.spark = spark
        self.checkpoint = directory / "checkpoint"
        self.table = directory / "table"
        self.options = {"servers": url, "startingOffsets": "earliest"} | options

    def start(self, **trigger: Any) -> StreamingQuery:
        frame = self.spark.readStream.format("jetstream").options(**self.options).load()
        writing = frame.writeStream.option("checkpointLocation", str(self.checkpoint))
        return writing.trigger(**trigger).start(str(self.table), format="parquet")

    def run(self) -> list[int]:
        """Read everything that is there now; return the number of rows of each non-empty batch."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(DEADLINE_S)
        found = (progress.numInputRows for progress in query.recentProgress)
        return [rows for rows in found if rows]

    def seqs(self, stream: str | None = None) -> list[int]:
        table = self.spark.read.parquet(str(self.table))
        if stream is not None:
            table = table.where(table.stream == stream)
        return sorted(row.seq for row in table.select("seq").collect())

    def forget_last_batch(self) -> int:
        """Forget the last batch's commits, as in a crash after its start; return its number."""
        last = max(int(entry.name) for entry in (self.checkpoint / "commits").glob("[0-9]*"))
        for log in (self.checkpoint / "commits", self.table / "_spark_metadata"):
            for entry in (log / str(last), log / f".{last}.crc"):
                entry.unlink(missing_ok=True)
        return last

    def offsets(self) -> dict[str, Any]:
        """Return the offsets of the last logged batch."""
        logs = self.checkpoint / "offsets"
        last = max(logs.glob("[0-9]*"), key=lambda entry: int(entry.name))
        return dict(json.loads(last.read_text().splitlines()[-1]))


def messages(stream: str, count: int) -> list[tuple[str, bytes, bytes]]:
    return [(f"{stream}.{n % 5}", b"", b"%d" % n) for n in range(count)]


def committed(query: StreamingQuery) -> dict[str, Any]:
    """Return the offset of the last completed batch."""
    progress = query.lastProgress
    return dict(json.loads(progress.sources[0].endOffset or "{}")) if progress else {}


def wait_for(condition: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up_at, "still false"
        time.sleep(0.05)


def test_restarts_and_limits_lose_nothing_and_double_nothing(
    spark: SparkSession,
    shared_server: JetStreamServer,
    client: NatsClient,
    names: Names,
    tmp_path: Path,
) -> None:
    stream = names()
    create(client, stream, f"{stream}.>")
    publish(client, messages(stream, 1000))
    job = Job(spark, tmp_path, shared_server.url, stream=stream, maxMsgsPerTrigger="400")
    assert job.run() == [400, 400, 200]
    assert job.offsets() == {stream: 1001}
    publish(client, messages(stream, 300))
    assert job.run() == [300]
    assert job.forget_last_batch() == 3
    publish(client, messages(stream, 100))
    assert job.run() == [300, 100], "the same batch again, then what is new"
    assert job.seqs() == list(range(1, 1401))


def test_several_streams_one_of_which_comes_later_and_their_lag(
    spark: SparkSession,
    shared_server: JetStreamServer,
    client: NatsClient,
    names: Names,
    tmp_path: Path,
) -> None:
    first, later = f"P{names()}", f"P{names()}"
    create(client, first, f"{first}.>")
    publish(client, messages(first, 100))
    heard: list[dict[str, int]] = []
    listener = LagListener(lambda _, lags: heard.append(lags))
    spark.streams.addListener(listener)
    job = Job(spark, tmp_path, shared_server.url, streamsPattern="PS.*", maxMsgsPerTrigger="60")
    query = job.start(processingTime="0 seconds")
    try:
        wait_for(lambda: listener.lags.get(str(query.id)) == {first: 0})
        create(client, later, f"{later}.>")
        publish(client, messages(later, 50))
        publish(client, messages(first, 20))
        wait_for(lambda: committed(query) == {first: 121, later: 51})
        wait_for(lambda: listener.lags.get(str(query.id)) == {first: 0, later: 0})
    finally:
        query.stop()
        spark.streams.removeListener(listener)
    assert {first: 40} in heard
    assert job.seqs(first) == list(range(1, 121))
    assert job.seqs(later) == list(range(1, 51))


def test_a_purge_while_a_query_is_down(
    spark: SparkSession,
    shared_server: JetStreamServer,
    client: NatsClient,
    names: Names,
    tmp_path: Path,
) -> None:
    stream = names()
    create(client, stream, f"{stream}.>")
    publish(client, messages(stream, 10))
    job = Job(spark, tmp_path, shared_server.url, stream=stream)
    job.run()
    publish(client, messages(stream, 10))
    client.api(f"STREAM.PURGE.{stream}", {"seq": 16})
    with pytest.raises(Exception, match=f'messages 11 to 15 of stream "{stream}" are gone'):
        job.run()
    job.options["failOnDataLoss"] = "false"
    job.run()
    assert job.seqs() == [*range(1, 11), *range(16, 21)]


def test_a_stream_made_anew_while_a_query_is_down(
    spark: SparkSession,
    shared_server: JetStreamServer,
    client: NatsClient,
    names: Names,
    tmp_path: Path,
) -> None:
    stream = names()
    create(client, stream, f"{stream}.>")
    publish(client, messages(stream, 10))
    job = Job(spark, tmp_path, shared_server.url, stream=stream)
    job.run()
    client.api(f"STREAM.DELETE.{stream}")
    with pytest.raises(Exception, match=f'there is no stream "{stream}"'):
        job.run()
    create(client, stream, f"{stream}.>")
    publish(client, messages(stream, 4))
    with pytest.raises(Exception, match="was deleted and made anew: it ends with sequence 4"):
        job.run()
    job.options["failOnDataLoss"] = "false"
    job.run()
    assert Counter(job.seqs()) == Counter([*range(1, 11), *range(1, 5)])


def test_new_messages_only_is_the_default(
    spark: SparkSession,
    shared_server: JetStreamServer,
    client: NatsClient,
    names: Names,
    tmp_path: Path,
) -> None:
    stream = names()
    create(client, stream, f"{stream}.>")
    publish(client, messages(stream, 10))
    job = Job(spark, tmp_path, shared_server.url, stream=stream, subjects=f"{stream}.1")
    del job.options["startingOffsets"]
    job.run()
    publish(client, messages(stream, 10))
    job.run()
    assert job.seqs() == [12, 17]


@pytest.mark.parametrize("which", ["go_server", "old_go_server"])
def test_nats_server(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, which: str
) -> None:
    server: JetStreamServer = request.getfixturevalue(which)
    job = Job(spark, tmp_path, server.url, stream="ORDERS", minPartitions="2")
    with NatsClient(options(server.url)) as client:
        create(client, "ORDERS", "ORDERS.>")
        publish(client, messages("ORDERS", 500))
        assert job.run() == [500]
        publish(client, messages("ORDERS", 50))
    job.forget_last_batch()
    assert job.run() == [500, 50]
    assert job.seqs() == list(range(1, 551))


def test_a_server_that_is_killed_and_comes_back(
    spark: SparkSession, start_server: Callable[[], JetStreamServer], tmp_path: Path
) -> None:
    server = start_server()
    with NatsClient(options(server.url)) as client:
        create(client, "ORDERS", "ORDERS.>")
        publish(client, messages("ORDERS", 300))
    job = Job(spark, tmp_path, server.url, stream="ORDERS", numRetries="8", maxMsgsPerTrigger="100")
    query = job.start(processingTime="0 seconds")
    try:
        wait_for(lambda: query.lastProgress and query.lastProgress.numInputRows == 0)
        server.kill()
        server.start()
        with NatsClient(options(server.url)) as client:
            publish(client, messages("ORDERS", 200))
        wait_for(lambda: committed(query) == {"ORDERS": 501})
    finally:
        query.stop()
    job.run()
    assert job.seqs() == list(range(1, 501))
