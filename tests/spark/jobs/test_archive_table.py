"""A table holds each message once, after any interruption: natsd/spark/jobs/archive_table.py."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake

from natsd.spark.jobs.archive_table import ArchiveTable
from natsd.spark.jobs.delta_log import DeltaLog, StreamRange
from natsd.spark.jobs.errors import JobError
from natsd.spark.jobs.table_files import TableFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "stream STRING, seq BIGINT, subject STRING, time TIMESTAMP, time_ns BIGINT, data BINARY"
DAY_NS = 86_400 * 10**9


def rows(spark: SparkSession, first: int, last: int, stream: str = "ORDERS") -> DataFrame:
    """Return messages of two regions; ten of them make a day."""
    time_ns = f"id * {DAY_NS // 10}"
    return spark.range(first, last + 1).selectExpr(
        f"'{stream}' stream",
        "id seq",
        "concat('orders.', if(id % 2 = 0, 'eu', 'us/1')) subject",
        f"timestamp_micros({time_ns} div 1000) time",
        f"{time_ns} time_ns",
        "cast(string(id) AS binary) data",
    )


def create(
    spark: SparkSession,
    root: Path,
    stream: str = "ORDERS",
    *,
    columns: str = COLUMNS,
    keep_hours: int = 168,
) -> ArchiveTable:
    return ArchiveTable.create(
        spark,
        str(root),
        source={"stream": stream},
        columns=columns,
        tokens={"region": 2},
        keep_hours=keep_hours,
    )


def sequences(table: DataFrame) -> list[int]:
    return sorted(row[0] for row in table.select("seq").collect())


def delta_sequences(root: Path, version: int | None = None) -> list[int]:
    """Return what a Delta reader that is not Spark reads."""
    table = DeltaTable(root, version=version)
    return sorted(table.to_pyarrow_table(columns=["seq"])["seq"].to_pylist())


def plain_sequences(root: Path) -> list[int]:
    """Return what a program reads that knows only Parquet."""
    files = ds.dataset(root, format="parquet", partitioning="hive")
    return sorted(files.to_table(columns=["seq"])["seq"].to_pylist())


def killed(*_given: Any, **_named: Any) -> None:
    raise KeyboardInterrupt


def test_what_is_there_already_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    table = create(spark, root)

    table.append(rows(spark, 1, 15))
    assert table.added == {"ORDERS": StreamRange(1, 15, 15)}
    again = create(spark, root)
    again.append(rows(spark, 10, 20))
    again.append(rows(spark, 1, 20))
    assert again.added == {"ORDERS": StreamRange(16, 20, 5)}

    assert sequences(again.read()) == list(range(1, 21))
    assert delta_sequences(root) == list(range(1, 21))
    assert plain_sequences(root) == list(range(1, 21))
    assert again.log.last("ORDERS") == 20


def test_a_delta_reader_reads_all_columns(spark: SparkSession, tmp_path: Path) -> None:
    create(spark, tmp_path / "t").append(rows(spark, 1, 3))

    read = DeltaTable(tmp_path / "t").to_pyarrow_table().sort_by("seq").to_pylist()

    from_spark = ArchiveTable(spark, str(tmp_path / "t")).read().orderBy("seq").collect()
    assert [(row["seq"], row["subject"], row["data"]) for row in read] == [
        (1, "orders.us/1", b"1"),
        (2, "orders.eu", b"2"),
        (3, "orders.us/1", b"3"),
    ]
    assert [row["region"] for row in read] == ["us/1", "eu", "us/1"]
    assert [row["time_ns"] for row in read] == [row.time_ns for row in from_spark]
    assert [row["time"].timestamp() * 1e9 for row in read] == [row["time_ns"] for row in read]
    assert DeltaTable(tmp_path / "t").count() == 3


def test_earlier_versions_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    table = create(spark, root)
    versions = []
    for first in range(1, 9, 2):
        table.append(rows(spark, first, first + 1))
        versions.append(table.log.version)

    assert table.compact() == 8

    assert len(table.log.files()) == 2
    assert sequences(table.read()) == delta_sequences(root) == list(range(1, 9))
    assert [len(delta_sequences(root, version)) for version in versions] == [2, 4, 6, 8]
    assert table.compact() == 0
    table.append(rows(spark, 5, 10))
    assert sequences(table.read()) == list(range(1, 11))


def test_replaced_files_can_be_removed_at_once(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    table = create(spark, root, keep_hours=0)
    for first in range(1, 9, 2):
        table.append(rows(spark, first, first + 1))

    assert table.compact() == 8

    assert plain_sequences(root) == delta_sequences(root) == list(range(1, 9))


def test_few_small_files_are_left(spark: SparkSession, tmp_path: Path) -> None:
    table = create(spark, tmp_path / "t")
    for first in range(1, 7, 2):
        table.append(rows(spark, first, first + 1))

    assert table.compact() == 0
    assert table.compact(target_bytes=1, files_min=2) == 0  # none is small
    assert table.compact(files_min=2) == 6


def test_what_another_attempt_still_writes_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """The tasks of a killed driver still write while the next driver writes."""
    from pyspark.sql.functions import udf

    table = create(spark, tmp_path / "t")
    table.append(rows(spark, 1, 5))
    staging = tmp_path / "t" / "_natsd" / "staging"
    (written,) = (tmp_path / "t").rglob("region=eu/*.parquet")
    data = written.read_bytes()

    def writes_beside(subject: str) -> str:
        late = staging / "0123456789abcdef" / "day=1970-01-01" / "region=eu"
        late.mkdir(parents=True, exist_ok=True)
        (late / "part-late.parquet").write_bytes(data)
        return subject

    new = rows(spark, 6, 10)
    table.append(new.withColumn("subject", udf(writes_beside, useArrow=False)("subject")))

    assert sequences(table.read()) == list(range(1, 11))
    assert plain_sequences(tmp_path / "t") == list(range(1, 11))


def test_files_are_in_directories_of_day_and_token(spark: SparkSession, tmp_path: Path) -> None:
    table = create(spark, tmp_path / "t")
    table.append(rows(spark, 1, 12))

    found = {file.path.rpartition("/")[0] for file in table.log.files()}

    assert found == {
        f"day=1970-01-0{day}/region={region}" for day in (1, 2) for region in ("eu", "us%2F1")
    }
    assert {row.region for row in table.read().collect()} == {"eu", "us/1"}


def test_any_token_makes_a_directory(spark: SparkSession, tmp_path: Path) -> None:
    """A subject's token may have characters that file systems and URLs treat specially."""
    from pyspark.sql import functions as F

    root = tmp_path / "t 1"
    tokens = ["".join(map(chr, range(low, low + 8))) for low in range(32, 128, 8)]
    tokens = [token.strip(" .").replace(".", "") for token in tokens] + ["a%20b", "~", "é日", "="]
    table = create(spark, root, keep_hours=0)
    for first in (1, 1001):
        numbered = [(first + n, token) for n, token in enumerate(tokens)]
        named = spark.createDataFrame(numbered, "seq BIGINT, token STRING").coalesce(1)
        batch = named.join(rows(spark, first, first + 99).drop("subject"), "seq")
        batch = batch.withColumn("subject", F.concat(F.lit("orders."), "token")).drop("token")
        table.append(batch.withColumn("time_ns", F.lit(0)))

    table.compact(files_min=2)
    again = create(spark, root, keep_hours=0)

    expected = sorted(tokens * 2)
    assert sorted(row.region for row in again.read().collect()) == expected
    held = DeltaTable(root).to_pyarrow_table(columns=["region"])["region"]
    assert sorted(held.to_pylist()) == expected


@pytest.mark.parametrize(("owner", "step"), [(TableFiles, "move"), (DeltaLog, "add")])
def test_a_batch_that_did_not_reach_the_log_has_not_happened(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
) -> None:
    table = create(spark, tmp_path / "t")
    table.append(rows(spark, 1, 4))
    with monkeypatch.context() as kill:
        kill.setattr(owner, step, killed)
        with pytest.raises(KeyboardInterrupt):
            table.append(rows(spark, 1, 9))
    assert delta_sequences(tmp_path / "t") == list(range(1, 5))

    again = create(spark, tmp_path / "t", keep_hours=0)  # removes what the killed job left
    again.append(rows(spark, 1, 12))

    assert sequences(again.read()) == list(range(1, 13))
    assert plain_sequences(tmp_path / "t") == list(range(1, 13))


def test_a_batch_in_the_log_is_not_added_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(spark, tmp_path / "t")
    commit = DeltaLog.add

    def commit_and_die(*given: Any) -> None:
        commit(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as kill:
        kill.setattr(DeltaLog, "add", commit_and_die)
        with pytest.raises(KeyboardInterrupt):
            table.append(rows(spark, 1, 9))

    again = create(spark, tmp_path / "t")
    again.append(rows(spark, 1, 9))
    assert again.added == {}
    assert delta_sequences(tmp_path / "t") == list(range(1, 10))


def test_the_job_that_began_last_writes(spark: SparkSession, tmp_path: Path) -> None:
    one = create(spark, tmp_path / "t")
    one.append(rows(spark, 1, 1))
    one.append(rows(spark, 2, 2))
    one.append(rows(spark, 3, 3))
    other = create(spark, tmp_path / "t")

    for _ in range(2):  # also after it has seen the other's commits
        with pytest.raises(JobError, match="another job writes this table now; run one at a time"):
            one.append(rows(spark, 4, 5))
        one.compact(files_min=2)
    other.append(rows(spark, 4, 5))

    assert delta_sequences(tmp_path / "t") == [1, 2, 3, 4, 5]


def test_a_new_column_is_added(spark: SparkSession, tmp_path: Path) -> None:
    """A later natsd may read more of a message than the one that made the table."""
    from pyspark.sql import functions as F

    create(spark, tmp_path / "t").append(rows(spark, 1, 2))
    table = create(spark, tmp_path / "t", columns=f"{COLUMNS}, trace STRING")
    table.append(rows(spark, 3, 4).withColumn("trace", F.lit("new")))

    expected = [(1, None), (2, None), (3, "new"), (4, "new")]
    read = table.read().orderBy("seq").select("seq", "trace").collect()
    assert [tuple(row) for row in read] == expected
    by_delta = DeltaTable(tmp_path / "t").to_pyarrow_table(columns=["seq", "trace"])
    assert [tuple(row.values()) for row in by_delta.sort_by("seq").to_pylist()] == expected


def test_a_table_of_another_source_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    create(spark, tmp_path / "t").append(rows(spark, 1, 2))

    with pytest.raises(JobError, match="the table is of stream ORDERS, not of stream BILLS"):
        create(spark, tmp_path / "t", stream="BILLS")
    with pytest.raises(JobError, match="is partitioned by day, region; that cannot be changed"):
        ArchiveTable.create(
            spark,
            str(tmp_path / "t"),
            source={"stream": "ORDERS"},
            columns=COLUMNS,
            tokens={},
        )


def test_where_no_archive_is(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="there is no archive here"):
        ArchiveTable(spark, str(tmp_path))
    write_deltalake(tmp_path / "other", pa.table({"seq": [1]}))
    with pytest.raises(JobError, match="no archive made this table; choose another directory"):
        create(spark, tmp_path / "other")
    tmp_path.joinpath("mine.txt").write_text("kept")
    with pytest.raises(JobError, match="there are files that no archive made"):
        create(spark, tmp_path)


def test_a_table_without_messages_is_created_anew(spark: SparkSession, tmp_path: Path) -> None:
    create(spark, tmp_path / "t", stream="ODRERS")

    table = create(spark, tmp_path / "t")

    table.append(rows(spark, 1, 2))
    assert delta_sequences(tmp_path / "t") == [1, 2]


def test_a_damaged_log_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    create(spark, tmp_path / "t").append(rows(spark, 1, 2))
    log = tmp_path / "t" / "_delta_log"
    sorted(log.glob("*.json"))[-1].write_bytes(b"{")

    with pytest.raises(JobError, match=r"_delta_log: .*Truncated record") as damaged:
        ArchiveTable(spark, str(tmp_path / "t"))
    assert "\n" not in str(damaged.value)


def test_files_are_synced_before_the_log_names_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(spark, tmp_path / "t")
    synced: list[str] = []
    sync, commit = os.fsync, DeltaLog.add

    def record(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    def commit_synced(*given: Any) -> None:
        named = [str(tmp_path / "t" / file.path) for file in given[1]]
        assert set(named) <= set(synced)
        assert str(tmp_path / "t") in synced
        commit(*given)

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(DeltaLog, "add", commit_synced)
    table.append(rows(spark, 1, 4))

    assert synced[-1] != synced[0]
    assert any(path.endswith(f"{table.log.version:020}.json") for path in synced)
