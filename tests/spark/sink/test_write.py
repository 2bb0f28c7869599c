"""`df.write` and `df.writeStream` into streams: each row once, after any failure.

Targets have the shortest possible duplicate window (100 ms), so that it hides no error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from natsd.spark.sink.begin_records import LEASE_S
from natsd.spark.sink.state_bucket import StateBucket
from natsd.spark.wire.client import NatsClient
from tests.spark.conftest import StartServer
from tests.spark.servers import JetStreamServer
from tests.spark.serving import create, options, publish
from tests.spark.writing import stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

COUNT = 1000
MANY = 20_000
WINDOW_NS = 100_000_000
QUERY_S = 150


@pytest.fixture
def client(shared_server: JetStreamServer) -> Iterator[NatsClient]:
    with NatsClient(options(shared_server.url)) as client:
        yield client
        for name in client.api("STREAM.NAMES").get("streams") or ():
            client.api(f"STREAM.DELETE.{name}")


def target(client: NatsClient, name: str = "TARGET", prefix: str = "t") -> str:
    create(client, name, f"{prefix}.>", duplicate_window=WINDOW_NS)
    return name


def rows(spark: SparkSession, count: int = COUNT, prefix: str = "t") -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr(
        f"concat('{prefix}.', id % 7) AS subject", "cast(id AS string) AS data"
    )


def write(frame: DataFrame, url: str, mode: str = "append", **given: Any) -> None:
    frame.write.format("jetstream").mode(mode).options(servers=url, **given).save()


def numbers(client: NatsClient, name: str = "TARGET") -> list[int]:
    return sorted(int(data) for _, data in stored(client, name))


def test_a_batch_write(
    spark: SparkSession, shared_server: JetStreamServer, client: NatsClient
) -> None:
    target(client)
    frame = rows(spark).selectExpr(
        "map('Kind', data) AS HEADERS", "cast(data AS binary) AS data", "subject", "1 AS seq"
    )
    write(frame, shared_server.url, stream="TARGET")
    assert numbers(client) == list(range(COUNT))
    read = spark.read.format("jetstream").options(servers=shared_server.url, stream="TARGET").load()
    assert read.where("headers['Kind'][0] = cast(data AS string)").count() == COUNT
    assert StateBucket(client, "natsd_spark").keys("begin") == []


def test_records_of_unnamed_writes_that_were_killed_go_by_their_age(
    spark: SparkSession, shared_server: JetStreamServer, client: NatsClient
) -> None:
    target(client)
    bucket = StateBucket(client, "natsd_spark")
    long_ago, lately = int(time.time()) - 8 * 86_400, int(time.time()) - 6 * 86_400
    begun = [f"write-{at}-{'0a' * 8}.0.{task}" for at in (long_ago, lately) for task in (0, 1)]
    for key in (*begun, "write-20260101.7.0"):
        bucket.create(f"begin.{key}", {})
    write(rows(spark), shared_server.url)
    assert sorted(bucket.keys("begin")) == sorted([*begun[2:], "write-20260101.7.0"])


def test_a_transaction_is_written_once(
    spark: SparkSession, shared_server: JetStreamServer, client: NatsClient
) -> None:
    target(client)
    for version in (1, 1, 2, 1):
        named = {"txnAppId": "nightly load", "txnVersion": version}
        write(rows(spark, 10), shared_server.url, **named)
    assert numbers(client) == sorted([*range(10)] * 2)


@pytest.mark.parametrize(
    ("change", "mode", "given", "error"),
    [
        ("", "overwrite", {}, "a stream is only appended to"),
        ("1 AS extra", "append", {}, 'the column "extra" cannot be written'),
        ("current_date() AS id", "append", {}, 'the column "id" is date; it must be string or'),
        ("", "append", {"txnAppId": "a"}, "txnAppId and txnVersion belong together"),
        ("", "append", {"maxInflite": "1"}, 'no option "maxinflite": do you mean "maxInFlight"'),
        ("", "append", {}, 'no stream has the subject "nobodys.'),
    ],
)
def test_what_cannot_be_written(
    spark: SparkSession,
    shared_server: JetStreamServer,
    change: str,
    mode: str,
    given: dict[str, str],
    error: str,
) -> None:
    """A task that Spark gave up may continue after the test, so its subject is unique."""
    frame = rows(spark, 4, "nobodys").selectExpr("*", *filter(None, [change]))
    with pytest.raises(Exception, match=error):
        write(frame, shared_server.url, mode, **given)


@pytest.fixture
def copying(
    spark: SparkSession, shared_server: JetStreamServer, client: NatsClient, tmp_path: Path
) -> Callable[..., StreamingQuery]:
    """Return a function that starts or resumes a query from SOURCE to TARGET.

    Batches have 250 messages.
    """
    create(client, "SOURCE", "s.>")
    publish(client, [(f"s.{n % 7}", b"", b"%d" % n) for n in range(COUNT)])
    target(client)
    return lambda change=None: copy(spark, shared_server, tmp_path, change)


def copy(
    spark: SparkSession,
    server: JetStreamServer,
    directory: Path,
    change: Callable[[DataFrame], DataFrame] | None,
) -> StreamingQuery:
    read = spark.readStream.format("jetstream").options(
        servers=server.url,
        stream="SOURCE",
        startingOffsets="earliest",
        maxMsgsPerTrigger=250,
    )
    frame = read.load().selectExpr("replace(subject, 's.', 't.') AS subject", "data", "headers")
    frame = frame if change is None else change(frame)
    writing = frame.writeStream.format("jetstream").options(
        servers=server.url, checkpointLocation=str(directory / "checkpoint")
    )
    return writing.queryName("copying").trigger(availableNow=True).start()


def finished(query: StreamingQuery) -> str:
    """Wait for the query's end and return its error; empty: none."""
    try:
        assert query.awaitTermination(QUERY_S)
    except Exception as error:
        return str(error)
    return ""


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Use small batches, so that a task that fails late has sent some of its rows."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "100")
    yield
    spark.conf.set(name, str(before))


def breaking(number: int) -> Callable[[DataFrame], DataFrame]:
    """Return a function that makes a frame whose row with this number fails its task."""
    check = f"if(cast(data AS string) = '{number}', raise_error('as a broken executor'), data)"

    return lambda frame: frame.selectExpr(
        *(name for name in frame.columns if name != "data"), f"{check} AS data"
    )


def wait_for_the_end(client: NatsClient) -> None:
    """Wait until the tasks that Spark gave up have ended, which may still start and have input."""
    bucket = StateBucket(client, "natsd_spark")
    deadline = time.monotonic() + 2 * LEASE_S
    while time.monotonic() < deadline:
        entries = [bucket.get(f"begin.{key}") for key in bucket.keys("begin")]
        ended = [entry.value.get("is_released", True) for entry in entries if entry is not None]
        if ended and all(ended):
            return
        time.sleep(0.05)


def forget_commit(directory: Path, batch: int) -> None:
    """Delete Spark's commit, as if Spark had died after the sink's commit."""
    commits = directory / "checkpoint" / "commits"
    (commits / str(batch)).unlink()
    (commits / f".{batch}.crc").unlink()


def test_a_query_copies_a_stream_and_a_replayed_batch_is_known(
    copying: Callable[..., StreamingQuery], client: NatsClient, tmp_path: Path
) -> None:
    assert finished(copying()) == ""
    assert numbers(client) == list(range(COUNT))
    forget_commit(tmp_path, 3)
    assert finished(copying()) == ""
    assert numbers(client) == list(range(COUNT))
    bucket = StateBucket(client, "natsd_spark")
    assert bucket.keys("begin") == []
    assert len(bucket.keys("fence")) == 1


@pytest.mark.usefixtures("small_batches")
def test_a_batch_that_broke_in_the_middle_is_completed(
    copying: Callable[..., StreamingQuery], client: NatsClient
) -> None:
    assert "as a broken executor" in finished(copying(breaking(600)))
    before = len(stored(client, "TARGET"))
    assert 500 <= before < COUNT
    assert finished(copying()) == ""
    assert numbers(client) == list(range(COUNT))


@pytest.mark.usefixtures("small_batches")
def test_another_order_is_refused_with_advice(
    spark: SparkSession, shared_server: JetStreamServer, client: NatsClient
) -> None:
    target(client)
    frame = rows(spark, MANY).coalesce(1)
    named = {"txnAppId": "load", "txnVersion": 1}
    with pytest.raises(Exception, match="as a broken executor"):
        write(breaking(MANY - 10)(frame), shared_server.url, **named)
    wait_for_the_end(client)
    before = numbers(client)
    assert len(before) < MANY
    shuffled = frame.sortWithinPartitions(frame["data"].desc())
    with pytest.raises(Exception, match="add a column id that names each row"):
        write(shuffled, shared_server.url, **named)
    assert numbers(client) == before
    write(frame, shared_server.url, **named)
    assert numbers(client) == list(range(MANY))


@pytest.mark.usefixtures("small_batches")
def test_another_order_is_fine_with_ids(
    spark: SparkSession, shared_server: JetStreamServer, client: NatsClient
) -> None:
    target(client)
    frame = rows(spark, MANY).selectExpr("*", "concat('row ', data) AS id")
    named = {"txnAppId": "load", "txnVersion": 1}
    with pytest.raises(Exception, match="as a broken executor"):
        write(breaking(MANY - 10)(frame), shared_server.url, **named)
    wait_for_the_end(client)
    assert len(numbers(client)) < MANY
    write(frame.repartition(3).orderBy(frame["data"].desc()), shared_server.url, **named)
    assert numbers(client) == list(range(MANY))


def test_a_server_that_is_killed_while_a_query_writes(
    spark: SparkSession, start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server()
    count = 30_000
    with NatsClient(options(server.url)) as client:
        create(client, "TARGET", "t.>", duplicate_window=WINDOW_NS)

    def kill() -> None:
        with NatsClient(options(server.url)) as watching:
            while watching.api("STREAM.INFO.TARGET")["state"]["messages"] < count // 10:
                pass
        server.kill()
        server.start()

    killing = threading.Thread(target=kill)
    killing.start()
    # Reconnecting must outlast a restart on a busy machine.
    write(rows(spark, count), server.url, maxInFlight=500, numRetries=8)
    killing.join()
    with NatsClient(options(server.url)) as client:
        assert client.api("STREAM.INFO.TARGET")["state"]["messages"] == count
    read = spark.read.format("jetstream").options(servers=server.url, stream="TARGET").load()
    assert read.select("data").distinct().count() == count


@pytest.mark.usefixtures("small_batches")
def test_writes_to_nats_server(
    spark: SparkSession, go_server: JetStreamServer, tmp_path: Path
) -> None:
    with NatsClient(options(go_server.url)) as client:
        create(client, "SOURCE", "s.>")
        publish(client, [(f"s.{n % 7}", b"", b"%d" % n) for n in range(COUNT)])
        target(client)
        broken = finished(copy(spark, go_server, tmp_path, breaking(600)))
        assert "as a broken executor" in broken
        assert finished(copy(spark, go_server, tmp_path, None)) == ""
        assert numbers(client) == list(range(COUNT))
