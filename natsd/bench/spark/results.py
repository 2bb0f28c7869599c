"""What was measured, by row and column, and how it compares.

Columns are the servers, ours first, and Spark alone, for rows no server takes part in. A row is
judged by our column: its median, divided by that of the row its goal names, or by the goal itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from natsd.bench.compare import Cell
from natsd.bench.report import cell_text
from natsd.bench.scenarios import Measurement
from natsd.bench.spark.processes import CpuSeconds
from natsd.bench.spark.reading import Growth
from natsd.bench.spark.rows import SparkRow
from natsd.bench.spark.scenario import Run
from natsd.bench.statistics import median, spread

ALONE = "Spark alone"
NOISY = 0.25


@dataclass
class SparkResult:
    """A row, and one cell per column; None: not measured there."""

    row: SparkRow
    cells: list[Cell | None]
    cpu: list[CpuSeconds] = field(default_factory=list)
    """Of our column's runs, or of Spark's alone."""
    base: SparkResult | None = None
    """The row it is compared with."""

    @property
    def median(self) -> float | None:
        """Of our column, or of the only one there is."""
        return next((cell.median for cell in self.cells if cell is not None), None)

    @property
    def to_base(self) -> float | None:
        """Our median, as a multiple of the base's or of the goal itself."""
        goal, ours = self.row.goal, self.median
        if goal is None or ours is None:
            return None
        base = goal.bound if not goal.of else self.base.median if self.base is not None else None
        return ours / base if base else None

    @property
    def misses_goal(self) -> bool:
        """Whether there is a goal and something to compare with, and it is not met."""
        return self.to_base is not None and not self.row.meets_goal(self.to_base)

    def add(self, column: int, run: Run) -> None:
        """Take one run in."""
        cell = self.cells[column] or Cell()
        self.cells[column] = cell
        cell.add(Measurement(run.values, problem=run.problem), self.row.value)
        is_ours = column in (0, len(self.cells) - 1)
        if is_ours and run.cpu is not None and not run.problem:
            self.cpu.append(run.cpu)

    # As a bar of plot.py: how many times the goal

    @property
    def title(self) -> str:
        return self.row.title

    @property
    def ratio(self) -> float | None:
        if self.row.goal is None or self.to_base is None:
            return None
        return self.to_base / self.row.goal.bound if self.row.goal.of else self.to_base

    @property
    def goal(self) -> float | None:
        return None if self.row.goal is None else 1.0

    @property
    def higher_is_better(self) -> bool:
        return self.row.metric.higher_is_better


def new_results(rows: Sequence[SparkRow], columns: int) -> list[SparkResult]:
    """Empty, each with the row it is compared with."""
    results = [SparkResult(row, [None] * columns) for row in rows]
    by_key = {result.row.key: result for result in results}
    for result in results:
        result.base = by_key.get(result.row.goal.of) if result.row.goal is not None else None
    return results


def table_rows(results: Sequence[SparkResult], columns: int, *, goals: bool) -> list[list[str]]:
    """The table's texts, row by row."""
    rows = []
    for result in results:
        if isinstance(result.row.scenario, Growth):
            continue
        cells = [text_of(result.cells[column], result.row) for column in range(columns)]
        ratio = "" if result.to_base is None else f"{result.to_base:,.2f}"
        rows.append([result.row.title, *cells, ratio, *([goal_mark(result)] if goals else [])])
    return rows


def growth_table(results: Sequence[SparkResult]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: how many rows are read, in how many partitions; empty: none was."""
    found = {
        (result.row.scenario.messages, result.row.scenario.partitions): result
        for result in results
        if isinstance(result.row.scenario, Growth)
    }
    counts = sorted({messages for messages, _ in found})
    parts = sorted({partitions for _, partitions in found})
    rows = []
    for count in counts:
        of_count = [found.get((count, part)) for part in parts]
        texts = ["" if each is None else text_of(each.cells[0], each.row) for each in of_count]
        rows.append([f"network read of {count:,} × 128 B", *texts])
    return ["", *(f"{part} partition{'s' if part > 1 else ''}" for part in parts)], rows


def text_of(cell: Cell | None, row: SparkRow) -> str:
    return "" if cell is None else cell_text(cell, row.metric)


def goal_mark(result: SparkResult) -> str:
    """What the goals column says."""
    text = result.row.goal_text
    if not text or result.to_base is None:
        return text
    return f"{text}  MISSED" if result.misses_goal else f"{text}  met"


def notes(results: Sequence[SparkResult], labels: Sequence[str]) -> list[str]:
    """What a reader must know to trust the table."""
    lines = [
        f"{result.row.title}, {label}: {cell.problem}"
        for result in results
        for label, cell in zip(labels, result.cells, strict=True)
        if cell is not None and cell.problem
    ]
    used = [f"{result.row.title}: {mean(result.cpu)}" for result in results if result.cpu]
    if used:
        lines += ["CPU time in µs for each row or message, ours:", *(f"  {each}" for each in used)]
    noisy = [result.row.title for result in results if is_noisy(result)]
    if noisy:
        lines.append(f"rounds differ by more than 25 % of the median in: {'; '.join(noisy)}")
    return lines


def is_noisy(result: SparkResult) -> bool:
    cells = [cell for cell in result.cells if cell is not None and len(cell.values) > 1]
    return any(spread(cell.values) > NOISY for cell in cells)


def mean(used: Sequence[CpuSeconds]) -> CpuSeconds:
    """Each one's median."""
    return CpuSeconds(
        median([each.java for each in used]),
        median([each.python for each in used]),
        median([each.server for each in used]),
    )


def as_json(results: Sequence[SparkResult], labels: Sequence[str]) -> list[dict[str, Any]]:
    """The rows as plain data."""
    return [
        {
            "key": result.row.key,
            "title": result.row.title,
            "unit": result.row.metric.unit,
            "divisor": result.row.metric.divisor,
            "higher_is_better": result.row.metric.higher_is_better,
            "goal": None if result.row.goal is None else asdict(result.row.goal),
            "ratio": result.to_base,
            "misses_goal": result.misses_goal,
            "cpu_seconds": asdict(mean(result.cpu)) if result.cpu else None,
            "cells": {
                label: {**asdict(cell), "median": cell.median}
                for label, cell in zip(labels, result.cells, strict=True)
                if cell is not None
            },
        }
        for result in results
    ]
