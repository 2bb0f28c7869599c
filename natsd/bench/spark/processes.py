"""Spark's processes below this one, seen in /proc: their CPU time, and their peak memory.

    we ─▶ java ─▶ pyspark.daemon ─▶ workers, forked

Outside Linux they cannot be seen: `cpu_seconds` and `peak_bytes` return None.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

PROC = Path("/proc")
RESET_PEAK = "5"
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)
_COMMAND_END = ") "


@dataclass(frozen=True)
class CpuSeconds:
    """The CPU seconds of the JVM, of its Python workers, and of the server."""

    java: float
    python: float
    server: float

    def since(self, before: CpuSeconds) -> CpuSeconds:
        """Return the CPU seconds used since `before`.

        The time of workers that ended in between is lost; no value is below 0.
        """
        return CpuSeconds(
            max(0.0, self.java - before.java),
            max(0.0, self.python - before.python),
            max(0.0, self.server - before.server),
        )

    def each(self, rows: float) -> CpuSeconds:
        """Return the CPU seconds for one of `rows` rows."""
        return CpuSeconds(self.java / rows, self.python / rows, self.server / rows)

    def __str__(self) -> str:
        microseconds = [1e6 * seconds for seconds in (self.java, self.python, self.server)]
        return "JVM {:.2f}, Python {:.2f}, server {:.2f}".format(*microseconds)


@dataclass(frozen=True)
class Process:
    """One process of the system."""

    pid: int
    parent: int
    command: str
    cpu_seconds: float


def cpu_seconds(server_pid: int | None) -> CpuSeconds | None:
    """Return the CPU seconds used until now; None outside Linux.

    `server_pid` None: the server's part is 0.
    """
    if not PROC.is_dir():
        return None
    java = python = 0.0
    for process in below(os.getpid(), list(processes())):
        if process.command == "java":
            java += process.cpu_seconds
        elif process.pid != server_pid and process.command.startswith("python"):
            python += process.cpu_seconds
    server = read(server_pid) if server_pid else None
    return CpuSeconds(java, python, server.cpu_seconds if server else 0.0)


class Meter:
    """A context manager that measures wall-clock and CPU time.

    It is used as `with Meter(server.pid) as used: …`; afterwards `seconds` and `cpu` hold the
    times.
    """

    def __init__(self, server_pid: int | None) -> None:
        self._server_pid = server_pid
        self.seconds = 0.0
        self.cpu: CpuSeconds | None = None

    def __enter__(self) -> Self:
        self._before = cpu_seconds(self._server_pid)
        self._began = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._began
        after = cpu_seconds(self._server_pid)
        if after is not None and self._before is not None:
            self.cpu = after.since(self._before)

    def each(self, rows: int) -> CpuSeconds | None:
        """Return the CPU time for one of `rows` rows; None if the system does not tell it."""
        return None if self.cpu is None else self.cpu.each(rows)


def forget_peaks() -> None:
    """Reset the peak memory that the system keeps for each worker."""
    for pid in workers():
        with contextlib.suppress(OSError):
            (PROC / str(pid) / "clear_refs").write_text(RESET_PEAK)


def peak_bytes() -> int | None:
    """Return the peak memory in bytes of the worker with the largest one; None: unknown."""
    peaks = []
    for pid in workers():
        with contextlib.suppress(OSError):
            found = _PEAK.search((PROC / str(pid) / "status").read_text())
            peaks += [int(found[1]) * 1024] if found else []
    return max(peaks, default=None)


def workers() -> list[int]:
    """Return the pids of Spark's Python processes: those below a JVM that this process started."""
    if not PROC.is_dir():
        return []
    every = list(processes())
    machines = [each for each in below(os.getpid(), every) if each.command == "java"]
    found = [each for machine in machines for each in below(machine.pid, every)]
    return [each.pid for each in found if each.command.startswith("python")]


def processes() -> Iterator[Process]:
    """Yield all processes of the system."""
    for path in PROC.iterdir():
        if path.name.isdigit() and (process := read(int(path.name))) is not None:
            yield process


def read(pid: int) -> Process | None:
    """Return the process with this pid; None: it has ended."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    command = text[text.index("(") + 1 : text.rindex(_COMMAND_END)]
    fields = text[text.rindex(_COMMAND_END) + 2 :].split()
    # user and system time, of the process and of its reaped children
    ticks = sum(map(int, fields[11:15]))
    return Process(pid, int(fields[1]), command, ticks / os.sysconf("SC_CLK_TCK"))


def below(pid: int, every: list[Process]) -> list[Process]:
    """Return the process's children, their children, and so on."""
    children: dict[int, list[Process]] = {}
    for process in every:
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = [pid]
    while waiting:
        below_it = children.get(waiting.pop(), [])
        found += below_it
        waiting += [process.pid for process in below_it]
    return found
