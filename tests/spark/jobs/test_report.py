"""The contents of a report, and its page: natsd/spark/jobs/report.py."""

from __future__ import annotations

import csv
import datetime as dt
import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from natsd.spark.jobs import stream_numbers
from natsd.spark.jobs.report import report
from natsd.spark.jobs.stream_numbers import compute, fitting_window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
START_US = int(START.timestamp()) * 1_000_000


def rows(spark: SparkSession) -> DataFrame:
    """Return 600 messages, one a second; 101 to 110 and 500 are missing; sent 0 to 9 ms before."""
    time_us = f"{START_US} + (id - 1) * 1000000"
    kept = spark.range(1, 601).where("id NOT BETWEEN 101 AND 110 AND id <> 500")
    return kept.selectExpr(
        "'ORDERS' stream",
        "id seq",
        "if(id % 4 = 0, 'orders.<b>bold</b>', 'orders.eu') subject",
        f"timestamp_micros({time_us}) time",
        f"({time_us}) * 1000 time_ns",
        f"map('Sent', array(string(timestamp_micros({time_us} - id % 10 * 1000)))) headers",
        "cast(repeat('x', int(id % 5)) AS binary) data",
    )


def test_its_numbers_are_those_of_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    done = report(rows(spark), tmp_path / "page.html", title="ORDERS", window="1 minute", top=1)

    (totals,) = done.numbers.totals
    assert totals["messages"] == 589
    assert totals["bytes"] == sum(i % 5 for i in range(1, 601) if not 101 <= i <= 110 and i != 500)
    assert (totals["first_seq"], totals["last_seq"], totals["missing"]) == (1, 600, 11)
    assert (totals["first_time"], totals["subjects"]) == (START, 2)
    assert [row["messages"] for row in done.numbers.windows] == [60, 50, *[60] * 6, 59, 60]
    assert done.numbers.windows[1]["start"] == START + dt.timedelta(minutes=1)
    assert [(row["subject"], row["messages"]) for row in done.numbers.subjects] == [
        ("orders.eu", 442)
    ]
    assert {row["up_to"]: row["messages"] for row in done.numbers.sizes}[0] == 117
    assert [(row["first_missing"], row["missing"]) for row in done.numbers.gaps] == [
        (101, 10),
        (500, 1),
    ]


def test_gaps_are_found_wherever_tasks_are_cut(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_numbers, "_GAP_BUCKET", 7)

    gaps = compute(rows(spark), window="1 hour", top=1, latency=None).gaps

    assert [(row["first_missing"], row["last_missing"]) for row in gaps] == [(101, 110), (500, 500)]
    assert gaps[0]["behind"] == START + dt.timedelta(seconds=99)
    assert gaps[0]["before"] == START + dt.timedelta(seconds=110)


def test_latency_is_from_the_publishers_header(spark: SparkSession, tmp_path: Path) -> None:
    done = report(rows(spark), tmp_path / "page.html", title="ORDERS", sent_header="Sent")

    (totals,) = done.numbers.totals
    assert done.numbers.latency == "from Sent to stored"
    assert (totals["latency_ms_p50"], totals["latency_ms_max"]) == (5.0, 9.0)
    assert "Latency: from Sent to stored" in (tmp_path / "page.html").read_text()


def test_numbers_as_files(spark: SparkSession, tmp_path: Path) -> None:
    done = report(
        rows(spark),
        tmp_path / "page.html",
        title="ORDERS",
        csv=tmp_path / "csv",
        parquet=tmp_path / "parquet",
    )

    with (tmp_path / "csv" / "totals.csv").open() as file:
        (totals,) = csv.DictReader(file)
    assert (totals["stream"], totals["messages"]) == ("ORDERS", "589")
    windows = spark.read.parquet(str(tmp_path / "parquet" / "windows.parquet"))
    assert windows.groupBy().sum("messages").collect()[0][0] == 589
    assert json.loads(json.dumps(done.as_json()))["totals"][0]["missing"] == 11
    assert done.text().startswith("ORDERS: 589 messages, 1.2 KiB, about 2 subjects, 11 sequences")


def test_a_report_of_nothing(spark: SparkSession, tmp_path: Path) -> None:
    done = report(rows(spark).where("false"), tmp_path / "page.html", title="ORDERS")

    assert done.numbers.totals == []
    assert "No sequence is missing" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("seconds", "window"), [(0, "1 second"), (3_000, "1 minute"), (10**6, "6 hours")]
)
def test_a_window_that_fits(seconds: int, window: str) -> None:
    times = {"first_time": START, "last_time": START + dt.timedelta(seconds=seconds)}
    assert fitting_window([times]) == window


def test_the_page_in_a_browser(spark: SparkSession, tmp_path: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on PATH")
    report(rows(spark), tmp_path / "page.html", title="ORDERS & more", sent_header="Sent")

    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    own = [*quiet, "--disable-component-update", "--disable-sync", "--no-first-run"]
    command = [chromium, *own, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    page = (tmp_path / "page.html").as_uri()
    shown = subprocess.run([*command, page], capture_output=True, text=True, timeout=50).stdout

    assert shown.count('class="main-svg"') >= 5  # each chart was drawn
    assert "<h1>ORDERS &amp; more</h1>" in shown
    assert "<b>bold</b>" not in shown.partition("</head>")[2]
