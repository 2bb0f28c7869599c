"""`natsd bench --spark` reports missing parts and errors in one line."""

import importlib.util
from importlib.machinery import ModuleSpec

import pytest

from natsd import bench
from natsd.bench.spark.measuring import problem_of
from natsd.spark import java


def without(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str, parent: str | None = None) -> ModuleSpec | None:
        return None if name == package else real(name, parent)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


def test_the_rows_can_be_listed(capfd: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--spark", "--list"]) == 0
    out, _ = capfd.readouterr()
    assert "fetch-128" in out
    assert "grow-4-10000000" in out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--row", "nothing"], "no row matches; --list shows them"),
        (["--connect", "127.0.0.1:1"], "--spark starts the servers itself, on all cores"),
        (["--vs", "no-such-program-anywhere"], "no such program: no-such-program-anywhere"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["--spark", *arguments]) == 1
    out, err = capfd.readouterr()
    assert (out, err) == ("", f"natsd bench: {complaint}\n")


def test_without_pyspark_nothing_is_measured_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    without("pyspark", monkeypatch)
    assert bench.main(["--spark"]) == 0
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.endswith("pip install natsd[spark]\n")


def test_without_java_neither(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(java, "candidates", lambda environment: iter(()))
    assert bench.main(["--spark"]) == 0
    out, err = capfd.readouterr()
    assert (out, err) == ("", f"natsd bench: {java.ADVICE}\n")


def test_without_nats_py_only_its_rows_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from natsd.bench.spark.command import can_run
    from natsd.bench.spark.rows import SparkScale, all_rows

    without("nats", monkeypatch)
    rows = all_rows(SparkScale())
    left = [row for row in rows if can_run(row, rows)]
    assert [row.key for row in rows if row not in left] == ["fetch-128", "fetch-1k"]
    _, err = capfd.readouterr()
    assert err == "natsd bench: rows of nats-py are left out: pip install nats-py\n"


def test_of_sparks_long_errors_one_line_is_told() -> None:
    error = RuntimeError(
        "Job aborted\n  File x, line 7\nnatsd.spark.errors.ConnectError: 127.0.0.1:1: refused\n  at"
    )
    assert problem_of(error) == "natsd.spark.errors.ConnectError: 127.0.0.1:1: refused"
    assert problem_of(ValueError()) == "ValueError"
