"""Measurements of a server process, and their summary."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
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
    """Return the smallest value that `percent` % of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def report(line: str) -> None:
    """Print a measured number; `pytest -rP` shows it."""
    sys.stdout.write(f"{line}\n")
