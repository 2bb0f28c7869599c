"""`storeDir`: the same rows as over the network, when the server is down."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from natsd.spark.wire.client import NatsClient
from tests.spark.servers import JetStreamServer
from tests.spark.serving import create, options, publish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_a_store_directory(
    spark: SparkSession, start_server: Callable[[], JetStreamServer]
) -> None:
    server = start_server()
    with NatsClient(options(server.url)) as client:
        for name in ("A", "B"):
            create(client, name, f"{name}.>")
            publish(client, [(f"{name}.{n % 5}", b"", b"%d" % n) for n in range(200)])
        client.api("STREAM.PURGE.A", {"seq": 51})
        client.api("STREAM.MSG.DELETE.A", {"seq": 60})

    def read(**given: Any) -> DataFrame:
        return spark.read.format("jetstream").options(**given).load()

    def rows(frame: DataFrame) -> list[Any]:
        return sorted(frame.collect(), key=lambda row: (row.stream, row.seq))

    online = rows(read(servers=server.url, streams="A,B"))
    last = rows(read(servers=server.url, stream="A", lastPerSubject="true"))
    store = str(server.store_dir)
    with pytest.raises(Exception, match="stop the server, read over the network"):
        read(storeDir=store, stream="A").collect()
    server.stop()

    assert rows(read(storeDir=store, streams="A,B")) == online
    assert rows(read(storeDir=store, streamsPattern="[AB]", columns="stream,seq")) == [
        (row.stream, row.seq) for row in online
    ]
    assert rows(read(storeDir=store, stream="A", lastPerSubject="true")) == last
    middle = next(row for row in online if row.stream == "A" and row.seq == 100)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(storeDir=store, stream="A", maxRecordsPerPartition="40", pushFilters="true")
        narrowed = frame.where(frame.time_ns >= middle.time_ns).where("subject = 'A.1'")
        assert narrowed.rdd.getNumPartitions() >= 3
        found = rows(narrowed)
        assert found == [
            row
            for row in online
            if row.stream == "A" and row.time_ns >= middle.time_ns and row.subject == "A.1"
        ]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    with pytest.raises(Exception, match=r'there is no stream "C" .* there are: A, B'):
        read(storeDir=store, stream="C").collect()
