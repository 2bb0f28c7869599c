"""An archive's log names what its files hold, after kill -9 too: natsd/spark/jobs/delta_log.py.

child: file, commit, file, commit, …     ✗ kill -9 at any moment, several times
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow.parquet import write_table

from natsd.spark.jobs.delta_log import DataFile, DeltaLog, StreamRange, has_log
from natsd.spark.jobs.errors import JobError
from tests.spark.failures.waiting import wait_until
from tests.store.crash import TORTURE

ROWS = 10
FIELDS = [("seq", "long"), ("day", "string")]
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in FIELDS
        ],
    }
)


def opened(root: Path) -> DeltaLog:
    if has_log(str(root), {}):
        return DeltaLog(str(root), {})
    return DeltaLog.create(str(root), SCHEMA, ["day"], {}, {})


def add(log: DeltaLog, root: Path, first: int) -> None:
    """Add the messages `first` … as one file."""
    last = first + ROWS - 1
    path = f"day=1/{log.version}-{first}.parquet"
    (root / "day=1").mkdir(exist_ok=True)
    write_table(pa.table({"seq": list(range(first, last + 1))}), root / path)
    size = (root / path).stat().st_size
    file = DataFile(path, size, 1, {"day": "1"}, {"numRecords": ROWS})
    log.add([file], {"S": StreamRange(first, last, ROWS)})


def fill(root: Path) -> None:
    """Add and compact until the process is killed."""
    log = opened(root)
    log.begin()
    while True:
        add(log, root, log.last("S") + 1)
        log.compact(1 << 20, files_min=8)


def has_reached(goal: int, root: Path, filling: subprocess.Popen[bytes]) -> bool:
    return filling.poll() is not None or opened(root).last("S") >= goal


@pytest.mark.torture
def test_killed_at_any_moment(tmp_path: Path) -> None:
    root = tmp_path / "t"
    chosen = random.Random(14)
    child = "import sys; from pathlib import Path; from tests.spark.jobs import test_delta_log as t"
    for _ in range(3 * TORTURE):
        before = opened(root).last("S")
        goal = before + ROWS * chosen.randrange(1, 12)
        with subprocess.Popen(
            [sys.executable, "-c", f"{child}; t.fill(Path(sys.argv[1]))", str(root)]
        ) as filling:
            try:
                wait_until(partial(has_reached, goal, root, filling))
                assert filling.poll() is None
            finally:
                filling.kill()

        held = DeltaTable(root)
        last = held.transaction_version("natsd archive S")
        assert last is not None
        read = sorted(held.to_pyarrow_table()["seq"].to_pylist())
        assert read == list(range(1, last + 1))
    assert opened(root).last("S") > 0


def test_a_log_that_is_behind_is_refused(tmp_path: Path) -> None:
    """Both jobs add the same messages; the job that began last has them in the table once."""
    root = tmp_path / "t"
    one = opened(root)
    one.begin()
    other = opened(root)
    other.begin()

    with pytest.raises(JobError, match="another job writes this table now"):
        add(one, root, 1)
    add(other, root, 1)
    add(other, root, 11)

    assert (opened(root).last("S"), opened(root).streams) == (20, ["S"])
    assert DeltaTable(root).count() == 20


def test_an_old_version_of_the_table_is_still_there(tmp_path: Path) -> None:
    root = tmp_path / "t"
    log = opened(root)
    log.begin()
    for first in (1, 11, 21, 31):
        add(log, root, first)
    before = log.version

    assert log.compact(1 << 20, files_min=4) == 4
    log.vacuum(1, only_replaced=False)

    assert [file.rows for file in log.files()] == [40]
    assert DeltaTable(root, version=before).to_pyarrow_table().num_rows == 40
    log.vacuum(0, only_replaced=True)
    assert len(list(root.glob("day=1/*"))) == 1
    assert DeltaTable(root).to_pyarrow_table().num_rows == 40


@pytest.mark.parametrize("step", [has_log, DeltaLog])
def test_storage_options_reach_the_storage(step: Callable[[str, dict[str, str]], object]) -> None:
    storage = {
        "endpoint_url": "http://127.0.0.1:1",
        "allow_http": "true",
        "region": "here",
        "access_key_id": "user",
        "secret_access_key": "word",
        "max_retries": "0",
    }
    with pytest.raises(JobError, match=r"^s3://bucket/t.*http://127\.0\.0\.1:1/bucket") as refused:
        step("s3://bucket/t", storage)
    assert "\n" not in str(refused.value)
    assert "\x1b" not in str(refused.value)
