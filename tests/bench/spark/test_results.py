"""Rows are judged by our own column, against the row that their goal names."""

from natsd.bench.compare import Cell
from natsd.bench.plot import svg
from natsd.bench.spark.processes import CpuSeconds
from natsd.bench.spark.results import (
    SparkResult,
    as_json,
    growth_table,
    new_results,
    notes,
    table_rows,
)
from natsd.bench.spark.rows import QUICK, SparkScale, all_rows, select
from natsd.bench.spark.scenario import Run

LABELS = ["natsd 1", "nats-server 2", "Spark alone"]
OURS, OTHER, ALONE = range(3)
CPU = CpuSeconds(1e-6, 2e-6, 3e-6)


def results_of(*patterns: str) -> list[SparkResult]:
    return new_results(select(all_rows(SparkScale()), list(patterns)), len(LABELS))


def add(result: SparkResult, column: int, *values: float) -> None:
    for value in values:
        result.add(column, Run({result.row.value: value}, CPU))


def test_a_row_is_a_multiple_of_another_one() -> None:
    fetch, read, parquet, store = results_of("*-1k")
    add(fetch, OURS, 40e3)
    add(read, OURS, 700e3, 900e3, 1000e3)
    add(read, OTHER, 200e3)
    add(parquet, ALONE, 4e6)
    add(store, OURS, 1e6)
    texts = table_rows([fetch, read, parquet, store], 3, goals=True)
    assert [row[1:] for row in texts] == [
        ["40 k rows/s", "", "", "", ""],
        ["900 k rows/s", "200 k rows/s", "", "22.50", "≥ 20 × nats-py  met"],
        ["", "", "4,000 k rows/s", "", ""],
        ["1,000 k rows/s", "", "", "0.25", "≥ 0.5 × Parquet  MISSED"],
    ]
    assert [each.misses_goal for each in (fetch, read, parquet, store)] == [False] * 3 + [True]
    assert [each.ratio for each in (read, store)] == [22.5 / 20, 0.5]


def test_a_row_may_have_a_bound_of_its_own() -> None:
    [write] = results_of("write-128")
    assert not write.misses_goal
    add(write, OURS, 250e3)
    add(write, OTHER, 300e3)
    assert (write.to_base, write.misses_goal) == (0.5, True)


def test_nothing_is_judged_by_what_is_not_there() -> None:
    _, read = results_of("read-1k")
    add(read, OURS, 1e6)
    assert read.to_base is None
    assert not read.misses_goal
    [[*_, goal]] = table_rows([read], 3, goals=True)
    assert goal == "≥ 20 × nats-py"


def test_one_void_run_voids_a_cell_and_is_explained() -> None:
    _, read = results_of("read-1k")
    add(read, OURS, 1e6)
    read.add(OURS, Run(problem="7 rows, not 8"))
    assert read.median is None
    assert table_rows([read], 3, goals=False) == [[read.row.title, "void: failed", "", "", ""]]
    assert f"{read.row.title}, natsd 1: 7 rows, not 8" in notes([read], LABELS)


def test_cpu_time_is_told_for_each_row() -> None:
    _, read = results_of("read-1k")
    add(read, OURS, 1e6)
    add(read, OTHER, 1e6)
    assert read.cpu == [CPU]
    assert f"  {read.row.title}: JVM 1.00, Python 2.00, server 3.00" in notes([read], LABELS)


def test_growth_is_a_table_of_its_own() -> None:
    grown = new_results(select(all_rows(QUICK), ["grow-*"]), 1)
    for number, result in enumerate(grown):
        add(result, OURS, 1e3 * number)
    assert table_rows(grown, 1, goals=True) == []
    head, rows = growth_table(grown)
    assert head == ["", "1 partition", "2 partitions", "4 partitions"]
    assert rows[1] == ["network read of 20,000 × 128 B", "3 k rows/s", "4 k rows/s", "5 k rows/s"]
    assert growth_table([]) == ([""], [])


def test_what_is_saved_and_drawn() -> None:
    fetch, read = results_of("read-1k")
    add(fetch, OURS, 40e3)
    add(read, OURS, 1e6)
    saved = as_json([fetch, read], LABELS)
    assert saved[1]["ratio"] == 25
    assert saved[1]["cells"]["natsd 1"]["median"] == 1e6
    assert "1.25 ×" in svg("title", "subtitle", [fetch, read])
    assert isinstance(read.cells[OURS], Cell)
