"""The rows about RAFT: three servers on this machine, routes between them, everything synced.

- "Propose → commit": the leader proposes 128 bytes, WINDOW proposals under way; a proposal counts
  when it is applied at the leader, that is after a majority has it on disk. All three processes and
  the load share this machine's cores.
- "Idle groups": the CPU time of each process while its groups rest.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from natsd.bench.goal_rows import GoalRow, cost, rate
from natsd.bench.raft.trio import SERVERS, Trio

BYTES = 128
WINDOW = 8192
IDLE_GROUPS = 1_000
SECONDS, QUICK_SECONDS = 5.0, 1.0


ROWS = (
    rate("rate", f"propose → commit, one group, {BYTES} B pipelined, k/s", 100),
    cost("p50_ms", "the same, p50 of a proposal, ms"),
    cost("cores", "the same, cores used by all three processes"),
    rate("rate_per_core", "the same, k/s for each core used"),
    cost("single_ms", "one proposal at a time, p50, ms"),
    cost("idle_percent", f"{IDLE_GROUPS:,} idle groups, CPU of a server, %", 2),
)


def run(directory: Path | None, seconds: float) -> dict[str, float]:
    """Measure all rows; files are made below `directory` and removed afterwards."""
    place = Path(tempfile.mkdtemp(prefix="natsd-bench-", dir=directory))
    try:
        return {**_load(place / "load", seconds), **_idle(place / "idle", seconds)}
    finally:
        shutil.rmtree(place)


def _load(place: Path, seconds: float) -> dict[str, float]:
    place.mkdir()
    with Trio(place, 1) as trio:
        leader = trio.leader()
        _loaded(trio, leader, 1.0, WINDOW)
        answers = _loaded(trio, leader, seconds, WINDOW)
        single = _loaded(trio, leader, seconds / 2, 1)[leader]
    rate, cpu = answers[leader]["rate"], sum(each["cpu_s"] for each in answers.values())
    cores = cpu / seconds
    return {
        "rate": rate / 1e3,
        "p50_ms": answers[leader]["p50_us"] / 1e3,
        "cores": cores,
        "rate_per_core": rate / 1e3 / cores,
        "single_ms": single["p50_us"] / 1e3,
    }


def _loaded(trio: Trio, leader: int, seconds: float, window: int) -> dict[int, dict[str, float]]:
    for server in SERVERS:
        is_leader = server == leader
        trio.ask(server, f"load {seconds} {BYTES} {window}" if is_leader else f"cpu {seconds}")
    return {server: trio.answer(server, seconds) for server in SERVERS}


def _idle(place: Path, seconds: float) -> dict[str, float]:
    place.mkdir()
    with Trio(place, IDLE_GROUPS) as trio:
        trio.leader()
        trio.wait_until_resting()
        for server in SERVERS:
            trio.ask(server, f"cpu {seconds}")
        used = [trio.answer(server, seconds)["cpu_s"] for server in SERVERS]
    return {"idle_percent": 100 * max(used) / seconds}


def texts(values: dict[str, float], *, goals: bool) -> list[list[str]]:
    """Return the texts of the table, row by row."""
    return [
        [row.title, row.text(values[row.key]), *([_goal_cell(row, values)] if goals else [])]
        for row in ROWS
    ]


def _goal_cell(row: GoalRow, values: dict[str, float]) -> str:
    is_met = row.meets_goal(values[row.key])
    return row.goal_text if is_met else f"{row.goal_text} MISSED"


def misses_goal(values: dict[str, float]) -> bool:
    """Return whether any row misses its goal."""
    return not all(row.meets_goal(values[row.key]) for row in ROWS)
