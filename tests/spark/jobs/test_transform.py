"""A user's function or SQL between streams and tables: natsd/spark/jobs/transform.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from natsd.spark.jobs.errors import JobError
from natsd.spark.jobs.transform import load_function, sql_function, transform
from tests.spark.jobs.test_archive import client_of, orders
from tests.spark.servers import JetStreamServer
from tests.spark.serving import create, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQL = """
SELECT concat('t1b.', split(subject, '[.]')[1]) AS subject, upper(string(data)) AS data, headers
FROM messages WHERE seq > 10
"""


def test_sql_into_a_stream_and_only_once(
    spark: SparkSession, shared_server: JetStreamServer, tmp_path: Path
) -> None:
    source = {"servers": shared_server.url, "stream": "T1"}
    into = {"servers": shared_server.url, "stream": "T1B"}
    with client_of(shared_server) as client:
        create(client, "T1", "t1.>")
        create(client, "T1B", "t1b.>")
        publish(client, orders(1, 15, "t1"))
        for _ in range(2):
            done = transform(
                spark,
                source,
                sql_function(SQL),
                checkpoint=str(tmp_path / "checkpoint"),
                into_stream=into,
            )
    rows = spark.read.format("jetstream").options(**into).load().orderBy("seq").collect()

    assert done.read == 0
    assert [row.data for row in rows] == [b"%d" % n for n in range(11, 16)]
    assert rows[0].subject == "t1b.eu"
    assert rows[0].headers["N"] == ["11"]


def test_a_function_into_a_table(
    spark: SparkSession, shared_server: JetStreamServer, tmp_path: Path
) -> None:
    source = {"servers": shared_server.url, "stream": "T2"}
    (tmp_path / "mine.py").write_text(
        "def even(rows):\n    return rows.where('seq % 2 = 0').select('seq', 'data')\n"
    )
    with client_of(shared_server) as client:
        create(client, "T2", "t2.>")
        publish(client, orders(1, 10, "t2"))
    done = transform(
        spark,
        source,
        load_function(f"{tmp_path / 'mine.py'}:even"),
        checkpoint=str(tmp_path / "checkpoint"),
        into_table=str(tmp_path / "table"),
    )

    assert done.read == 10
    found = spark.read.parquet(str(tmp_path / "table")).collect()
    assert sorted(row.seq for row in found) == [2, 4, 6, 8, 10]
    assert done.text().startswith("10 messages read in 1 batch, ")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "write it as module:function or file.py:function"),
        ("no.such.module:f", "No module named"),
        ("json:nothing", "there is no function of that name"),
    ],
)
def test_a_function_that_is_not_there(name: str, said: str) -> None:
    with pytest.raises(JobError, match=said):
        load_function(name)


def test_rows_that_are_no_messages_are_refused_in_one_line(
    spark: SparkSession, shared_server: JetStreamServer, tmp_path: Path
) -> None:
    source = {"servers": shared_server.url, "stream": "T3"}
    with client_of(shared_server) as client:
        create(client, "T3", "t3.>")
        publish(client, orders(1, 2, "t3"))
    with pytest.raises(JobError) as refused:
        transform(
            spark,
            source,
            sql_function("SELECT seq FROM messages"),
            checkpoint=str(tmp_path / "checkpoint"),
            into_stream={"servers": shared_server.url, "stream": "T3"},
        )
    assert "subject" in str(refused.value)
    assert "\n" not in str(refused.value)
