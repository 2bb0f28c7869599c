"""mode=queue: batches of a work queue, acknowledged when they are committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from natsd.spark.reader.queue_reader import QueueDelivery, QueueError
from natsd.spark.wire.client import NatsClient
from tests.spark.reader.test_stream_read import Job, Names, messages
from tests.spark.servers import JetStreamServer
from tests.spark.serving import create, options, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ACK_WAIT_S = 1


class Queue(Job):
    """A job that reads a work queue through its durable consumer."""

    def __init__(
        self, spark: SparkSession, directory: Path, url: str, stream: str, **options: str
    ) -> None:
        given = {"mode": "queue", "consumer": "spark", "ackWait": f"{ACK_WAIT_S}s"} | options
        super().__init__(spark, directory, url, stream=stream, **given)
        del self.options["startingOffsets"]


def left(client: NatsClient, stream: str) -> int:
    """Return the number of messages that the work queue still has."""
    return int(client.api(f"STREAM.INFO.{stream}")["state"]["messages"])


def pending(client: NatsClient, stream: str) -> tuple[int, int]:
    """Return the numbers of unacknowledged and of undelivered messages."""
    info = client.api(f"CONSUMER.INFO.{stream}.spark")
    return info["num_ack_pending"], info["num_pending"]


def work_queue(client: NatsClient, stream: str, count: int, **settings: Any) -> None:
    create(client, stream, f"{stream}.>", **{"retention": "workqueue"} | settings)
    publish(client, messages(stream, count))


def test_a_work_queue_is_emptied_batch_by_batch(
    spark: SparkSession,
    shared_server: JetStreamServer,
    client: NatsClient,
    names: Names,
    tmp_path: Path,
) -> None:
    stream = names()
    work_queue(client, stream, 250)
    job = Queue(spark, tmp_path, shared_server.url, stream, maxMsgsPerTrigger="100")
    assert job.run() == [100, 100, 50]
    assert left(client, stream) == 0
    assert job.seqs() == list(range(1, 251))
    publish(client, messages(stream, 20))
    assert job.run() == [20]
    assert job.offsets()[stream] == {"batch": 4, "sequences": [[251, 270]], "unacked": []}
    assert left(client, stream) == 0
    assert job.seqs() == list(range(1, 271))


@pytest.mark.parametrize("which", ["natsd", "go_server"])
def test_a_batch_that_did_not_commit_comes_again_and_is_not_acknowledged_before(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    start_server: Callable[[], JetStreamServer],
    tmp_path: Path,
    which: str,
) -> None:
    """The user's function fails in the second batch; then the query is started again."""
    server = start_server() if which == "natsd" else request.getfixturevalue(which)
    job = Queue(spark, tmp_path, server.url, "WORK", maxMsgsPerTrigger="100")
    with NatsClient(options(server.url)) as client:
        work_queue(client, "WORK", 150)
        table = str(job.table)

        def failing(frame: Any, batch: int) -> None:
            if batch == 1:
                raise RuntimeError("in the middle")
            frame.write.parquet(f"{table}/{batch}")

        reading = spark.readStream.format("jetstream").options(**job.options).load()
        writing = reading.writeStream.option("checkpointLocation", str(job.checkpoint))
        query = writing.trigger(availableNow=True).foreachBatch(failing).start()
        with pytest.raises(Exception, match="in the middle"):
            query.awaitTermination(60)
        assert left(client, "WORK") == 50, "the first batch has been acknowledged, no more"
        assert pending(client, "WORK") == (50, 0)

        def works(frame: Any, batch: int) -> None:
            frame.write.parquet(f"{table}/{batch}")

        query = writing.trigger(availableNow=True).foreachBatch(works).start()
        assert query.awaitTermination(60)
        found = spark.read.parquet(f"{table}/0", f"{table}/1").select("seq").collect()
        assert sorted(row.seq for row in found) == list(range(1, 151))
        state = job.offsets()["WORK"]
        assert state["sequences"] == [[101, 150]]


def test_others_share_the_consumer_and_subjects_are_chosen(
    spark: SparkSession,
    shared_server: JetStreamServer,
    client: NatsClient,
    names: Names,
    tmp_path: Path,
) -> None:
    stream = names()
    work_queue(client, stream, 30, retention="interest")
    config = {"durable_name": "spark", "ack_policy": "explicit", "filter_subject": f"{stream}.1"}
    body = {"stream_name": stream, "config": config | {"deliver_policy": "all"}}
    client.api(f"CONSUMER.CREATE.{stream}.spark.{stream}.1", body)
    publish(client, messages(stream, 30))
    inbox = client.subscribe(client.new_inbox())
    client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.spark", b"2", reply=inbox.subject)
    theirs = [inbox.next(5), inbox.next(5)]
    assert all(message is not None for message in theirs)
    job = Queue(spark, tmp_path, shared_server.url, stream, columns="data,seq")
    job.run()
    expected = [n for n in range(31, 61) if (n - 31) % 5 == 1]
    assert job.seqs() == expected[2:]
    assert pending(client, stream)[1] == 0


def test_a_consumer_that_does_not_fit_is_refused(
    spark: SparkSession,
    shared_server: JetStreamServer,
    client: NatsClient,
    names: Names,
    tmp_path: Path,
) -> None:
    stream = names()
    create(client, stream, f"{stream}.>", allow_direct=False)
    with pytest.raises(Exception, match="does not allow direct gets"):
        Queue(spark, tmp_path / "a", shared_server.url, stream).run()
    other = names()
    create(client, other, f"{other}.>")
    body = {"stream_name": other, "config": {"durable_name": "spark", "ack_policy": "none"}}
    client.api(f"CONSUMER.CREATE.{other}.spark", body)
    with pytest.raises(Exception, match="is not a pull consumer with ack policy explicit"):
        Queue(spark, tmp_path / "b", shared_server.url, other).run()


def test_what_a_reply_subject_tells() -> None:
    assert QueueDelivery.of("$JS.ACK.S.c.1.42.7.1700000000.9") == QueueDelivery(42, 9)
    assert QueueDelivery.of("$JS.ACK._.acc.S.c.1.42.7.1700000000.9.token") == QueueDelivery(42, 9)
    with pytest.raises(QueueError, match="is no subject to acknowledge"):
        QueueDelivery.of("_INBOX.1.2")
