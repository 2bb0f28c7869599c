"""Replays under a rate limit, with mapped subjects: natsd/spark/jobs/replay.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from natsd.spark.client import Client
from natsd.spark.connecting import ConnectOptions
from natsd.spark.jobs.archive import archive
from natsd.spark.jobs.replay import replay
from tests.spark.servers import JetStreamServer
from tests.spark.serving import create, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATE = 40
COUNT = 70


def test_no_second_has_more_messages_than_the_rate(
    spark: SparkSession, shared_server: JetStreamServer, tmp_path: Path
) -> None:
    servers = {"servers": shared_server.url}
    with Client(ConnectOptions(servers=(shared_server.url,))) as client:
        create(client, "PACED", "paced.>")
        create(client, "SLOW", "slow.>")
        publish(client, [(f"paced.{n % 7}.x", b"", b"%d" % n) for n in range(COUNT)])
    archive(spark, {**servers, "stream": "PACED"}, str(tmp_path))
    mappings = {"paced.*.x": "slow.{{wildcard(1)}}"}
    done = replay(
        spark, str(tmp_path), {**servers, "stream": "SLOW"}, mappings=mappings, rate=RATE, tasks=1
    )

    assert done.sent == COUNT
    rows = spark.read.format("jetstream").options(**servers, stream="SLOW").load().collect()
    assert sorted((row.subject, bytes(row.data)) for row in rows) == sorted(
        (f"slow.{n % 7}", b"%d" % n) for n in range(COUNT)
    )
    times = sorted(row.time_ns for row in rows)
    burst = RATE // 5  # what may be made up for, and what is sent together
    allowed = RATE + burst
    assert all(
        later - earlier > 10**9 for earlier, later in zip(times, times[allowed:], strict=False)
    )
