"""The benchmark's Spark rows from end to end, on a few thousand messages, with one session."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from natsd import bench
from natsd.bench.spark import command, rows
from natsd.bench.spark.rows import SparkScale

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TINY = SparkScale(2_000, 1_000, 6_000, 1_000, (100, 1_000, 2_000))
pytestmark = pytest.mark.timeout(300)


def test_every_row_is_measured(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    @contextlib.contextmanager
    def session(place: Path) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(command, "session", session)
    monkeypatch.setattr(command, "QUICK", TINY)
    saved, picture = tmp_path / "bench.json", tmp_path / "bench.svg"
    files = ["--json", str(saved), "--plot", str(picture), "--directory", str(tmp_path)]
    assert bench.main(["--spark", "--quick", "--goals", *files]) == 0
    out, _ = capfd.readouterr()
    assert "void" not in out
    assert "4 partitions" in out
    measured = json.loads(saved.read_text())["rows"]
    assert [each["key"] for each in measured] == [row.key for row in rows.all_rows(TINY)]
    for each in measured:
        assert [cell["problem"] for cell in each["cells"].values()] == [""]
    assert picture.read_text().startswith("<svg")
