"""`spark.read.format("jetstream")` against natsd and nats-server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from natsd.spark.options import ReadOptions
from natsd.spark.reader.readers import batch_reader
from natsd.spark.rows.columns import ddl
from natsd.spark.wire.client import NatsClient
from tests.spark.servers import JetStreamServer
from tests.spark.serving import create, options, publish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 1000
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
Names = Callable[[], str]
Read = Callable[..., "DataFrame"]


@pytest.fixture
def read(spark: SparkSession, shared_server: JetStreamServer) -> Read:
    def load(**options: Any) -> DataFrame:
        given = {"servers": shared_server.url} | options
        return spark.read.format("jetstream").options(**given).load()

    return load


@pytest.fixture(scope="module")
def orders(shared_server: JetStreamServer) -> Iterator[str]:
    """Yield a stream of COUNT messages: `o.<n mod 10>`, data `n`.

    Every fourth has a header, and two are deleted.
    """
    with NatsClient(options(shared_server.url)) as client:
        fill(client, "ORDERS", "o")
        for sequence in (5, 500):
            client.api("STREAM.MSG.DELETE.ORDERS", {"seq": sequence})
        yield "ORDERS"
        client.api("STREAM.DELETE.ORDERS")


def fill(client: NatsClient, name: str, prefix: str, count: int = COUNT, **settings: Any) -> None:
    create(client, name, f"{prefix}.>", **settings)
    header = b"NATS/1.0\r\nKind: a\r\nKind: b\r\n\r\n"
    publish(
        client,
        [(f"{prefix}.{n % 10}", b"" if n % 4 else header, b"%d" % n) for n in range(1, count + 1)],
    )


def seqs(frame: DataFrame) -> list[int]:
    return [row.seq for row in frame.select("seq").collect()]


def test_every_column(read: Read, orders: str) -> None:
    rows = read(stream=orders).collect()
    assert [row.seq for row in rows] == [n for n in range(1, COUNT + 1) if n not in (5, 500)]
    assert {row.stream for row in rows} == {orders}
    assert all(row.subject == f"o.{row.seq % 10}" for row in rows)
    assert all(bytes(row.data) == b"%d" % row.seq for row in rows)
    assert all(row.headers == (None if row.seq % 4 else {"Kind": ["a", "b"]}) for row in rows)
    now = datetime.now(UTC)
    for row in rows:
        moment = datetime.fromtimestamp(row.time_ns // 1_000_000_000, UTC)
        assert row.time.astimezone(UTC).replace(microsecond=0) == moment
        assert row.time.microsecond == row.time_ns // 1000 % 1_000_000
        assert now - timedelta(minutes=10) < moment <= now


def test_a_choice_of_columns(read: Read, orders: str, spark: SparkSession) -> None:
    assert read(stream=orders, columns="data,seq").columns == ["data", "seq"]
    assert "headers" not in read(stream=orders, includeHeaders="false").columns
    frame = read(stream=orders, columns="seq")
    assert frame.count() == COUNT - 2
    by_schema = spark.read.format("jetstream").schema("seq BIGINT, subject STRING")
    assert by_schema.options(**dict_of(read, orders)).load().first().subject == "o.1"
    wrong = spark.read.format("jetstream").schema("seq STRING").options(**dict_of(read, orders))
    with pytest.raises(Exception, match="schema given is not that of the columns"):
        wrong.load().collect()


def dict_of(read: Read, stream: str) -> dict[str, str]:
    closure = read.__closure__
    assert closure is not None
    server = next(c.cell_contents for c in closure if isinstance(c.cell_contents, JetStreamServer))
    return {"servers": server.url, "stream": stream}


def test_partitions(read: Read, orders: str) -> None:
    assert read(stream=orders).rdd.getNumPartitions() == 1
    four = read(stream=orders, minPartitions="4")
    assert four.rdd.getNumPartitions() == 4
    assert sorted(seqs(four)) == seqs(read(stream=orders))
    assert read(stream=orders, maxRecordsPerPartition="300").rdd.getNumPartitions() == 4


def test_where_it_begins_and_ends(read: Read, orders: str) -> None:
    def of(**options: str) -> list[int]:
        return seqs(read(stream=orders, **options))

    assert of(startingOffsets='{"ORDERS": 998}') == [998, 999, 1000]
    assert of(endingOffsets='{"ORDERS": 4}') == [1, 2, 3]
    assert of(startingOffsets="latest") == []
    with pytest.raises(Exception, match='names sequence 2000 of stream "ORDERS", which ends with'):
        of(endingOffsets='{"ORDERS": 2000}')
    assert len(of(endingOffsets='{"ORDERS": 2000}', failOnDataLoss="false")) == COUNT - 2
    with pytest.raises(Exception, match='names stream "OTHER", which is not among'):
        of(startingOffsets='{"OTHER": 1, "ORDERS": 1}')


def test_times_cut_rows_exactly(read: Read, orders: str) -> None:
    times = {row.seq: row.time_ns for row in read(stream=orders, columns="seq,time_ns").collect()}
    start, end = times[300], times[700]

    def rfc(ns: int) -> str:
        seconds, rest = divmod(ns, 1_000_000_000)
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"

    found = seqs(read(stream=orders, startingTimestamp=rfc(start), endingTimestamp=rfc(end)))
    assert found == [seq for seq, time_ns in times.items() if start <= time_ns < end]


def test_subjects_and_several_streams(read: Read, client: NatsClient, names: Names) -> None:
    first, second = names(), names()
    fill(client, first, f"{first}.a", 20)
    fill(client, second, f"{second}.b", 20)
    frame = read(streams=f"{first}, {second}", subjects="*.a.1,*.b.2")
    found = sorted((row.stream, row.seq) for row in frame.collect())
    assert found == sorted([(first, 1), (first, 11), (second, 2), (second, 12)])
    by_pattern = read(streamsPattern=f"{first}|{second}", columns="stream,seq")
    assert by_pattern.count() == 40
    assert read(streamsPattern="NONE.*").collect() == []


def test_the_last_of_each_subject(read: Read, orders: str) -> None:
    assert seqs(read(stream=orders, lastPerSubject="true")) == list(range(991, 1001))
    up_to = read(stream=orders, lastPerSubject="true", endingOffsets='{"ORDERS": 11}')
    assert seqs(up_to) == [1, 2, 3, 4, 6, 7, 8, 9, 10]


@pytest.mark.usefixtures("spark")  # it parses the schema
def test_a_key_that_changes_before_it_is_read_is_not_missed(
    shared_server: JetStreamServer, client: NatsClient, names: Names
) -> None:
    name = names()
    create(client, name, f"{name}.>", max_msgs_per_subject=1)
    publish(client, [(f"{name}.{key}", b"", b"old") for key in range(5)])
    given = {"servers": shared_server.url, "stream": name, "lastPerSubject": "true"}
    schema = StructType.fromDDL(ddl())
    reader = batch_reader(ReadOptions.parse(given), schema, takes_filters=False)
    planned = reader.partitions()
    publish(client, [(f"{name}.{key}", b"", b"new") for key in range(3)])

    rows = [row for part in planned for batch in reader.read(part) for row in batch.to_pylist()]

    assert sorted(row["subject"] for row in rows) == [f"{name}.{key}" for key in range(5)]


def test_what_was_purged_is_an_error_unless_it_may_be_lost(
    read: Read, client: NatsClient, names: Names
) -> None:
    stream = names()
    fill(client, stream, stream, 20)
    client.api(f"STREAM.PURGE.{stream}", {"seq": 11})
    assert seqs(read(stream=stream)) == list(range(11, 21))
    explicit = f'{{"{stream}": 1}}'
    with pytest.raises(Exception, match=f'messages 1 to 10 of stream "{stream}" are gone'):
        seqs(read(stream=stream, startingOffsets=explicit))
    lossy = read(stream=stream, startingOffsets=explicit, failOnDataLoss="false")
    assert seqs(lossy) == list(range(11, 21))


@pytest.fixture(params=[False, True], ids=["disabled", "enabled"])
def pushdown(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[bool]:
    """Yield whether the session pushes filters down."""
    spark.conf.set(PUSHDOWN, str(request.param).lower())
    yield request.param
    spark.conf.unset(PUSHDOWN)


def test_where_is_pushed_down_or_not_and_right_either_way(
    read: Read, orders: str, pushdown: bool
) -> None:
    def where(condition: str) -> DataFrame:
        return read(stream=orders, pushFilters="true").where(condition)

    frame = where("seq >= 100 and seq < 200 and subject in ('o.1', 'o.2', 'x') and data != '101'")
    assert seqs(frame) == [n for n in range(102, 200) if n % 10 in (1, 2)]
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert (">= 100" in plan) is not pushdown  # pushed filters are not evaluated again
    times = {row.seq: row.time_ns // 1000 for row in read(stream=orders).collect()}
    middle = times[600]
    later = where(f"time > timestamp_micros({middle})")
    assert seqs(later) == [seq for seq, time in times.items() if time > middle]
    assert where("subject like 'o.%' and seq in (3, 7)").count() == 2
    assert where("stream = 'OTHER'").collect() == []
    assert where("subject = 'o.*'").collect() == []


def test_a_frame_that_is_used_again_has_all_its_rows(
    read: Read, orders: str, pushdown: bool
) -> None:
    """Without pushFilters no filter is pushed: a pushed one would limit later uses too."""
    frame = read(stream=orders)
    assert seqs(frame.where("seq = 7")) == [7]
    both = frame.where("seq = 8").union(frame.where("seq = 9"))
    assert sorted(seqs(both)) == [8, 9]
    assert frame.count() == COUNT - 2


def test_sql_and_registering(orders: str, spark: SparkSession, read: Read) -> None:
    from natsd.spark import register

    register(spark)
    where = dict_of(read, orders)
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW orders USING jetstream"
        f" OPTIONS (servers '{where['servers']}', stream '{orders}')"
    )
    assert spark.sql("SELECT count(*) AS n FROM orders").first().n == COUNT - 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"maxMsgs": "1"}, 'has no option "maxmsgs"'),
        ({"stream": "MISSING"}, 'there is no stream "MISSING"'),
        ({"servers": "nats://127.0.0.1:1", "numRetries": "0"}, "127.0.0.1:1"),
    ],
)
def test_errors_say_what_and_where(read: Read, given: dict[str, str], said: str) -> None:
    with pytest.raises(Exception) as error:
        read(**{"stream": "ORDERS"} | given).collect()
    assert said in str(error.value)


@pytest.mark.parametrize("which", ["go_server", "old_go_server"])
def test_nats_server(request: pytest.FixtureRequest, spark: SparkSession, which: str) -> None:
    server: JetStreamServer = request.getfixturevalue(which)
    with NatsClient(options(server.url)) as client:
        fill(client, "ORDERS", "o", 300)

    def load(**options: str) -> DataFrame:
        given = {"servers": server.url, "stream": "ORDERS"} | options
        return spark.read.format("jetstream").options(**given).load()

    rows = load(minPartitions="2").collect()
    assert sorted(row.seq for row in rows) == list(range(1, 301))
    middle = sorted(row.time_ns for row in rows)[150]
    late = load(startingTimestamp=str(middle // 1_000_000))
    floor_ns = middle // 1_000_000 * 1_000_000
    assert late.count() == sum(row.time_ns >= floor_ns for row in rows)
    assert load(lastPerSubject="true").count() == 10
