"""What the store costs, and how that grows from ten thousand to ten million messages.

Messages have 128 bytes, their subjects 30, such as `orders.eu.00042.item.00000007`: a thousand of
them in the rows about messages, one for each message (at most a million) in those about subjects.
Each size runs in a process of its own, so that memory is that of the size. Files go to a temporary
directory, those of the codec row to /dev/shm where there is one.

- Appending goes batch by batch, as from a compiled caller: `append_batch` of 500 messages. "On
  disk" is group commit: each batch is acknowledged when it is synced, the next ones go on
  meanwhile, until the committer says that too much waits.
- "Of the disk" divides by a plain loop that writes as many bytes with pwrite and fdatasync in
  pieces of a mebibyte; "of raw reading" by one that reads the same files. Before cold reading the
  kernel is told to forget the files.
- Memory is the growth of the resident set, less the cached blocks.
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from natsd.bench import store_measures

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
QUICK_SIZES = SIZES[:2]
GOAL_SIZE = 1_000_000


@dataclass(frozen=True)
class StoreRow:
    """One line of the table; `goal` is a bound on the value at a million messages."""

    key: str
    title: str
    goal: float | None = None
    higher_is_better: bool = True
    digits: int = 2

    def meets_goal(self, value: float) -> bool:
        """Whether the value is good enough; without a goal every one is."""
        if self.goal is None:
            return True
        return value >= self.goal if self.higher_is_better else value <= self.goal

    @property
    def goal_text(self) -> str:
        """The goal as the table shows it."""
        if self.goal is None:
            return ""
        return f"{'≥' if self.higher_is_better else '≤'} {self.goal:g}"


def rate(key: str, title: str, goal: float | None = None) -> StoreRow:
    return StoreRow(key, title, goal)


def cost(key: str, title: str, goal: float | None = None, digits: int = 2) -> StoreRow:
    return StoreRow(key, title, goal, higher_is_better=False, digits=digits)


ROWS = (
    rate("append_memory", "append to memory, M/s", 4.0),
    rate("append_memory_python", "the same, one call each from Python, M/s"),
    rate("append_tmpfs", "append to files on tmpfs, M/s", 2.5),
    rate("append_disk", "append to disk, group commit, M/s", 1.0),
    rate("append_disk_share", "the same, of the disk"),
    rate("append_1000", "round-robin over 1,000 file streams, synced, M/s"),
    rate("read_warm", "sequential read, warm, M/s", 3.0),
    rate("read_cold", "sequential read, cold, M/s"),
    rate("read_cold_share", "the same, of raw reading", 0.5),
    cost("read_random_us", "random read, warm, µs", 3.0),
    rate("recover_scan", "recovery by scan, M/s", 3.0),
    cost("recover_index_s", "recovery with index.db, s", 0.2, digits=3),
    cost("message_bytes", "memory per message outside the cache, B", 8.0, digits=1),
    cost("subject_bytes", "memory per subject of 30 bytes, B", 80.0, digits=1),
    cost("dict_bytes", "the same in a Python dict, B", digits=1),
    rate("trie_put", "trie, puts, M/s", 1.5),
    rate("trie_get", "trie, gets, M/s", 2.5),
    cost("load_last_us", "last message of a subject, µs", 3.0),
    cost("pending_some_ms", "num_pending, wildcard matching 1 %, ms", 5.0),
    cost("pending_all_ms", "num_pending, wildcard matching all, ms", 100.0),
)


def run(sizes: Sequence[int], directory: Path | None) -> dict[int, dict[str, float]]:
    """All rows of all sizes; files are made below `directory` and removed again."""
    results = {}
    for size in sizes:
        place = Path(tempfile.mkdtemp(prefix="natsd-bench-", dir=directory))
        try:
            results[size] = measured_apart(size, place)
        finally:
            shutil.rmtree(place)
    return results


def measured_apart(size: int, place: Path) -> dict[str, float]:
    """One process for each group of rows, so that none sees the memory of another."""
    values: dict[str, float] = {}
    context = multiprocessing.get_context("spawn")
    for group in store_measures.GROUPS:
        with context.Pool(1) as pool:
            values |= pool.apply(store_measures.run_group, (group, size, place))
    return values


def texts(results: dict[int, dict[str, float]], *, goals: bool) -> list[list[str]]:
    """The table's lines."""
    lines = []
    for row in ROWS:
        cells = [text_of(row, values.get(row.key)) for values in results.values()]
        lines.append([row.title, *cells, *([goal_cell(row, results)] if goals else [])])
    return lines


def text_of(row: StoreRow, value: float | None) -> str:
    return "" if value is None else f"{value:,.{row.digits}f}"


def goal_cell(row: StoreRow, results: dict[int, dict[str, float]]) -> str:
    return f"{row.goal_text} MISSED" if misses_goal(row, results) else row.goal_text


def misses_goal(row: StoreRow, results: dict[int, dict[str, float]]) -> bool:
    """At a million messages; smaller runs judge nothing. The disk may be what is slow."""
    value = results.get(GOAL_SIZE, {}).get(row.key)
    if value is None or row.meets_goal(value):
        return False
    return row.key != "append_disk" or results[GOAL_SIZE]["append_disk_share"] < 0.8
