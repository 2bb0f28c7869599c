"""A table holds each message once, after any interruption: natsd/spark/jobs/archive_table.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from natsd.spark.jobs.archive_table import ArchiveTable, small_files
from natsd.spark.jobs.errors import JobError
from natsd.spark.jobs.table_log import (
    STATE_EVERY,
    AddedFile,
    StreamRange,
    TableChange,
    TableLog,
    TableState,
)

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


def create(spark: SparkSession, root: Path, stream: str = "ORDERS") -> ArchiveTable:
    return ArchiveTable.create(
        spark,
        str(root),
        source={"stream": stream},
        columns=COLUMNS,
        tokens={"region": 2},
    )


def sequences(table: DataFrame) -> list[int]:
    return sorted(row[0] for row in table.select("seq").collect())


def test_what_is_there_already_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    table = create(spark, tmp_path / "t")

    table.append(rows(spark, 1, 15))
    assert table.added == {"ORDERS": StreamRange(1, 15, 15)}
    again = ArchiveTable(spark, table.root)
    again.append(rows(spark, 10, 20))
    again.append(rows(spark, 1, 20))
    assert again.added == {"ORDERS": StreamRange(16, 20, 5)}

    assert sequences(again.read()) == list(range(1, 21))
    assert sequences(spark.read.parquet(str(tmp_path / "t"))) == list(range(1, 21))
    assert again.state.streams == {"ORDERS": StreamRange(1, 20, 20)}


def test_what_another_attempt_still_writes_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """The tasks of a killed driver still write while the next driver writes."""
    from pyspark.sql.functions import udf

    table = create(spark, tmp_path / "t")
    table.append(rows(spark, 1, 5))
    staging = tmp_path / "t" / "_natsd" / "staging"
    (written,) = (tmp_path / "t").rglob("region=eu/*.parquet")
    data = written.read_bytes()

    def writes_beside(subject: str) -> str:
        late = staging / "000000000002" / "day=1970-01-01" / "region=eu"
        late.mkdir(parents=True, exist_ok=True)
        (late / "part-late.parquet").write_bytes(data)
        return subject

    new = rows(spark, 6, 10)
    table.append(new.withColumn("subject", udf(writes_beside, useArrow=False)("subject")))

    assert sequences(table.read()) == list(range(1, 11))
    assert sequences(spark.read.parquet(str(tmp_path / "t"))) == list(range(1, 11))


def test_files_are_in_directories_of_day_and_token(spark: SparkSession, tmp_path: Path) -> None:
    table = create(spark, tmp_path / "t")
    table.append(rows(spark, 1, 12))

    found = {path.rpartition("/")[0] for path in table.state.files}

    assert found == {
        f"day=1970-01-0{day}/region={region}" for day in (1, 2) for region in ("eu", "us%2F1")
    }
    assert {row.region for row in table.read().collect()} == {"eu", "us/1"}


def test_a_change_that_was_not_finished_is_finished_by_the_next_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(spark, tmp_path / "t")
    with monkeypatch.context() as killed:
        killed.setattr(ArchiveTable, "finish", lambda _self: None)
        table.append(rows(spark, 1, 9))
    assert sequences(ArchiveTable(spark, str(tmp_path / "t")).read()) == list(range(1, 10))

    again = create(spark, tmp_path / "t")

    again.append(rows(spark, 1, 9))
    assert again.added == {}
    assert sequences(spark.read.parquet(str(tmp_path / "t"))) == list(range(1, 10))


def test_a_change_that_was_cut_off_behind_the_log_is_recovered(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(spark, tmp_path / "t")
    with monkeypatch.context() as killed:
        killed.setattr(TableState, "apply", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            table.append(rows(spark, 1, 9))

    table.recover()

    assert sequences(spark.read.parquet(str(tmp_path / "t"))) == list(range(1, 10))


def test_a_batch_that_did_not_reach_the_log_has_not_happened(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(spark, tmp_path / "t")
    with monkeypatch.context() as killed:
        killed.setattr(TableLog, "append", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            table.append(rows(spark, 1, 9))

    again = create(spark, tmp_path / "t")
    again.append(rows(spark, 1, 12))

    assert sequences(spark.read.parquet(str(tmp_path / "t"))) == list(range(1, 13))


def raise_interrupt(_self: object, _change: TableChange) -> None:
    raise KeyboardInterrupt


def test_small_files_become_one(spark: SparkSession, tmp_path: Path) -> None:
    table = create(spark, tmp_path / "t")
    for first in range(1, 9, 2):
        table.append(rows(spark, first, first + 1))
    assert len(table.state.files) == 8

    assert table.compact() == 8

    assert len(table.state.files) == 2
    assert sequences(spark.read.parquet(str(tmp_path / "t"))) == list(range(1, 9))
    assert sequences(table.read()) == list(range(1, 9))
    assert table.compact() == 0
    assert table.state.rows == 8


def test_which_files_are_small() -> None:
    sizes = {"d/1": 10, "d/2": 20, "d/3": 90, "d/4": 30, "d/5": 40, "d/6": 45, "e/1": 10, "e/2": 9}

    assert small_files(sizes, target_bytes=100, files_min=2) == [
        ["d/1", "d/2"],
        ["d/4", "d/5"],
        ["e/1", "e/2"],
    ]
    assert small_files(sizes, target_bytes=100, files_min=3) == []


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
    tmp_path.joinpath("mine.txt").write_text("kept")
    with pytest.raises(JobError, match="there are files that no archive made"):
        create(spark, tmp_path)


def test_the_log_is_read_from_its_last_state(spark: SparkSession, tmp_path: Path) -> None:
    table = create(spark, tmp_path / "t")
    for number in range(1, STATE_EVERY + 3):
        added = [AddedFile(f"f{number}", f"s{number}", 1)]
        removed = [f"f{number - 1}"] if number % 2 == 0 else []
        streams = {"S": StreamRange(number, number, 1)}
        table._log.append(TableChange(number, "now", added, removed, streams))

    log = TableLog(table._files)

    assert log.state == TableState(
        number=STATE_EVERY + 2,
        files=table.state.files,
        streams={"S": StreamRange(1, STATE_EVERY + 2, STATE_EVERY + 2)},
        unfinished=table.state.unfinished,
    )
    assert len(table._files.names("_natsd/log")) == 3


def test_two_jobs_at_once_are_told(spark: SparkSession, tmp_path: Path) -> None:
    one, other = create(spark, tmp_path / "t"), create(spark, tmp_path / "t")
    one.append(rows(spark, 1, 2))

    with pytest.raises(JobError, match="another job has just written it; run one at a time"):
        other.append(rows(spark, 1, 2))


def test_a_damaged_log_is_named(spark: SparkSession, tmp_path: Path) -> None:
    create(spark, tmp_path / "t").append(rows(spark, 1, 2))
    log = tmp_path / "t" / "_natsd" / "log"
    log.joinpath(".000000000001.json.crc").unlink()
    log.joinpath("000000000001.json").write_bytes(b"{")

    with pytest.raises(JobError, match=r"000000000001\.json: it is damaged"):
        ArchiveTable(spark, str(tmp_path / "t"))
