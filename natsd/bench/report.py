"""The output of a comparison: a table for people, JSON for programs.

On a terminal rich draws the table; elsewhere the table is Markdown, ready to be pasted.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from natsd.bench.compare import Cell, Plan, RowResult
from natsd.bench.machine import Machine
from natsd.bench.rows import Metric
from natsd.bench.statistics import spread

PLAIN_COLUMNS = 200
BUSY_LOAD_SHARE = 0.9
FOOTNOTE = "*"


def value_text(value: float, metric: Metric) -> str:
    """Return a number with its unit."""
    return f"{value / metric.divisor:,.{metric.digits}f} {metric.unit}"


def cell_text(cell: Cell, metric: Metric) -> str:
    """Return a cell's median, or the reason why the cell is void."""
    if cell.missing:
        return f"void: {cell.missing:,} lost"
    if cell.problem:
        return "void: failed"
    middle = cell.median
    if middle is None:
        return "–"
    mark = FOOTNOTE if cell.load_share > BUSY_LOAD_SHARE else ""
    return value_text(middle, metric) + mark


def ratio_text(result: RowResult) -> str:
    """Return the ratio of our median to the best other one; empty if there is none."""
    return "" if result.ratio is None else f"{result.ratio:.2f}"


def goal_mark(result: RowResult) -> str:
    """Return the text of the goal column: the goal, and whether it was met."""
    goal = result.row.goal_text
    if not result.is_judged:
        return goal
    return f"{goal}  MISSED" if result.misses_goal else f"{goal}  met"


def table_rows(results: Sequence[RowResult], compared: bool, goals: bool) -> list[list[str]]:
    """Return the texts of the table, row by row."""
    rows = []
    for result in results:
        texts = [
            result.row.title,
            *(cell_text(cell, result.row.metric) for cell in result.cells),
        ]
        if compared:
            texts.append(ratio_text(result))
        if goals:
            texts.append(goal_mark(result))
        rows.append(texts)
    return rows


def headings(labels: Sequence[str], compared: bool, goals: bool) -> list[str]:
    """Return the texts of the table's first line."""
    extra = ["ratio"] if compared else []
    return ["", *labels, *extra, *(["goal"] if goals else [])]


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO) -> None:
    """Print a table; the first column is aligned left, the others (numbers) right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    terminal = stream.isatty()
    console = Console(
        file=stream,
        width=None if terminal else PLAIN_COLUMNS,
        highlight=False,
        no_color=not terminal,
    )
    table = Table(box=box.SIMPLE_HEAD if terminal else box.MARKDOWN)
    for index, heading in enumerate(head):
        table.add_column(heading, justify="left" if index == 0 else "right")
    for row in rows:
        missed = row[-1].endswith("MISSED")
        table.add_row(*row, style="bold red" if terminal and missed else None)
    console.print(table)


def notes(results: Sequence[RowResult], labels: Sequence[str]) -> list[str]:
    """Return the lines below the table: problems, busy load processes, and noisy rows."""
    lines = []
    for result in results:
        for label, cell in zip(labels, result.cells, strict=True):
            if cell.problem:
                lines.append(f"{result.row.title}, {label}: {cell.problem}")
    if any(cell.load_share > BUSY_LOAD_SHARE for result in results for cell in result.cells):
        lines.append(
            f"{FOOTNOTE} a load process was busy more than {BUSY_LOAD_SHARE:.0%} of the time: "
            "the server may be faster than shown"
        )
    noisy = [
        result.row.title
        for result in results
        if any(len(cell.values) > 1 and spread(cell.values) > 0.25 for cell in result.cells)
    ]
    if noisy:
        lines.append(f"rounds differ by more than 25 % of the median in: {'; '.join(noisy)}")
    return lines


def as_json(
    machine: Machine,
    plan: Plan,
    labels: Sequence[str],
    results: Sequence[RowResult],
) -> dict[str, Any]:
    """Return the whole comparison as data that can be encoded as JSON."""
    return {
        "machine": asdict(machine),
        "plan": asdict(plan),
        "servers": list(labels),
        "rows": [
            {
                "key": result.row.key,
                "title": result.row.title,
                "unit": result.row.metric.unit,
                "divisor": result.row.metric.divisor,
                "higher_is_better": result.row.metric.higher_is_better,
                "goal": result.row.goal,
                "ratio": result.ratio,
                "misses_goal": result.misses_goal,
                "cells": [{**asdict(cell), "median": cell.median} for cell in result.cells],
            }
            for result in results
        ],
    }


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write the comparison to `path`."""
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


class Status:
    """One line on standard error that is overwritten; nothing is written if it is no terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr

    def __call__(self, text: str) -> None:
        """Show `text` in place of the line's previous text."""
        if self._stream.isatty():
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()

    def clear(self) -> None:
        """Empty the line, for the output that follows."""
        self("")
