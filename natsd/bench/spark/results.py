"""The measured values by row and column, and their comparison with the goals.

Columns are the servers, ours first, and "Spark alone" for rows in which no server takes part. A row
is judged by our column: its median is divided by that of the row which its goal names, or by the
goal itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from natsd.bench.compare import Cell
from natsd.bench.measurement import Measurement
from natsd.bench.report import cell_text
from natsd.bench.spark.processes import CpuSeconds
from natsd.bench.spark.reading import Growth
from natsd.bench.spark.rows import SparkRow
from natsd.bench.spark.scenario import Run
from natsd.bench.statistics import median, spread

ALONE = "Spark alone"
NOISY = 0.25


@dataclass
class SparkResult:
    """A row, with one cell per column; None: not measured in that column."""

    row: SparkRow
    cells: list[Cell | None]
    cpu: list[CpuSeconds] = field(default_factory=list)
    """CPU seconds per row of each run in our column, or in the column "Spark alone"."""
    base: SparkResult | None = None
    """The result of the row that this row is compared with; None: there is none."""

    @property
    def median(self) -> float | None:
        """The median of our column, or of the only column that was measured; None: void."""
        return next((cell.median for cell in self.cells if cell is not None), None)

    @property
    def to_base(self) -> float | None:
        """Our median, as a multiple of the base's median or of the goal itself; None: unknown."""
        goal, ours = self.row.goal, self.median
        if goal is None or ours is None:
            return None
        base = goal.bound if not goal.of else self.base.median if self.base is not None else None
        return ours / base if base else None

    @property
    def misses_goal(self) -> bool:
        """Whether the row has a goal, can be compared, and does not meet the goal."""
        return self.to_base is not None and not self.row.meets_goal(self.to_base)

    def add(self, column: int, run: Run) -> None:
        """Add one run to the cell of the column."""
        cell = self.cells[column] or Cell()
        self.cells[column] = cell
        cell.add(Measurement(run.values, problem=run.problem), self.row.value)
        is_ours = column in (0, len(self.cells) - 1)
        if is_ours and run.cpu is not None and not run.problem:
            self.cpu.append(run.cpu)

    # These properties are a bar of plot.py, whose length is the multiple of the goal.

    @property
    def title(self) -> str:
        """The title of the row."""
        return self.row.title

    @property
    def ratio(self) -> float | None:
        """Our value as a multiple of the goal; None: there is no goal or no value."""
        if self.row.goal is None or self.to_base is None:
            return None
        return self.to_base / self.row.goal.bound if self.row.goal.of else self.to_base

    @property
    def goal(self) -> float | None:
        """1.0, since `ratio` is relative to the goal; None: the row has no goal."""
        return None if self.row.goal is None else 1.0

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher ratio is better than a lower one."""
        return self.row.metric.higher_is_better


def new_results(rows: Sequence[SparkRow], columns: int) -> list[SparkResult]:
    """Return empty results, each with the result of the row it is compared with."""
    results = [SparkResult(row, [None] * columns) for row in rows]
    by_key = {result.row.key: result for result in results}
    for result in results:
        result.base = by_key.get(result.row.goal.of) if result.row.goal is not None else None
    return results


def table_rows(results: Sequence[SparkResult], columns: int, *, goals: bool) -> list[list[str]]:
    """Return the texts of the table, row by row."""
    rows = []
    for result in results:
        if isinstance(result.row.scenario, Growth):
            continue
        cells = [text_of(result.cells[column], result.row) for column in range(columns)]
        ratio = "" if result.to_base is None else f"{result.to_base:,.2f}"
        rows.append([result.row.title, *cells, ratio, *([goal_mark(result)] if goals else [])])
    return rows


def growth_table(results: Sequence[SparkResult]) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of the table of rows read by number of partitions.

    The rows are empty if none was measured.
    """
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
    """Return the cell as the table shows it; empty if it was not measured."""
    return "" if cell is None else cell_text(cell, row.metric)


def goal_mark(result: SparkResult) -> str:
    """Return the text of the goal column: the goal, and whether it was met."""
    text = result.row.goal_text
    if not text or result.to_base is None:
        return text
    return f"{text}  MISSED" if result.misses_goal else f"{text}  met"


def notes(results: Sequence[SparkResult], labels: Sequence[str]) -> list[str]:
    """Return the lines below the table: problems, CPU time, and noisy rows."""
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
    """Return whether the rounds of a cell differ by more than 25 % of their median."""
    cells = [cell for cell in result.cells if cell is not None and len(cell.values) > 1]
    return any(spread(cell.values) > NOISY for cell in cells)


def mean(used: Sequence[CpuSeconds]) -> CpuSeconds:
    """Return the median of the JVM's, the workers' and the server's CPU seconds."""
    return CpuSeconds(
        median([each.java for each in used]),
        median([each.python for each in used]),
        median([each.server for each in used]),
    )


def as_json(results: Sequence[SparkResult], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows as data that can be encoded as JSON."""
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
