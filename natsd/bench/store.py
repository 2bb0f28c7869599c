"""The cost of the store, from ten thousand to ten million messages.

Messages have 128 bytes, their subjects 30, such as `orders.eu.00042.item.00000007`. The rows about
messages use a thousand subjects; those about subjects use one for each message, at most a million.
Each size runs in its own processes, so that the measured memory belongs to that size alone. Files
go to a temporary directory, those of the tmpfs row to /dev/shm if it exists.

- Messages are appended in batches of 500 by `append_many`. "To disk" is group commit: each batch is
  acknowledged when it is synced, while further batches are appended, until the committer says that
  too much is pending.
- "Of the disk" is the speed as a share of a plain loop that writes as many bytes with pwrite and
  fdatasync, a mebibyte at a time; "of raw reading" is a share of a loop that reads the same files.
  Before cold reading the kernel is told to drop the files from its cache.
- Memory is the growth of the resident set, less the cached blocks.
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from natsd.bench import store_measures
from natsd.bench.goal_rows import GoalRow, cost, rate

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
QUICK_SIZES = SIZES[:2]
GOAL_SIZE = 1_000_000


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
    """Measure all sizes and return the values by size and key.

    Files are made below `directory` (None: the system's temporary directory) and removed
    afterwards.
    """
    results = {}
    for size in sizes:
        place = Path(tempfile.mkdtemp(prefix="natsd-bench-", dir=directory))
        try:
            results[size] = measured_apart(size, place)
        finally:
            shutil.rmtree(place)
    return results


def measured_apart(size: int, place: Path) -> dict[str, float]:
    """Measure each group of rows in its own process, so that none sees another's memory."""
    values: dict[str, float] = {}
    context = multiprocessing.get_context("spawn")
    for group in store_measures.GROUPS:
        with context.Pool(1) as pool:
            values |= pool.apply(store_measures.run_group, (group, size, place))
    return values


def texts(results: dict[int, dict[str, float]], *, goals: bool) -> list[list[str]]:
    """Return the texts of the table, row by row."""
    lines = []
    for row in ROWS:
        cells = [row.text(values.get(row.key)) for values in results.values()]
        lines.append([row.title, *cells, *([goal_cell(row, results)] if goals else [])])
    return lines


def goal_cell(row: GoalRow, results: dict[int, dict[str, float]]) -> str:
    """Return the text of the goal column."""
    return f"{row.goal_text} MISSED" if misses_goal(row, results) else row.goal_text


def misses_goal(row: GoalRow, results: dict[int, dict[str, float]]) -> bool:
    """Return whether the row misses its goal at a million messages.

    Without a run of that size no goal is missed. `append_disk` misses its goal only if natsd
    reaches less than 80 % of the speed of the disk itself: otherwise the disk is what is slow.
    """
    value = results.get(GOAL_SIZE, {}).get(row.key)
    if value is None or row.meets_goal(value):
        return False
    return row.key != "append_disk" or results[GOAL_SIZE]["append_disk_share"] < 0.8
