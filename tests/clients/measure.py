"""What the tests measure of a server process, and how they sum it up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def resident_bytes(pid: int) -> int:
    """The memory of a process that is in RAM."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    shown = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True
    )
    return int(shown.stdout) * 1024


def percentile(values: list[float], percent: float) -> float:
    """The smallest value that `percent` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def report(line: str) -> None:
    """Say a number that was measured; `pytest -rP` shows it."""
    sys.stdout.write(f"{line}\n")
