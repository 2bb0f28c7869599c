"""The CPU time of a process."""

import os
import subprocess
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used so far, from /proc or else from `ps`."""
    stat = Path(f"/proc/{pid}/stat")
    if stat.exists():
        fields = stat.read_text().rpartition(")")[2].split()  # the name before may have blanks
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    shown = subprocess.run(
        ["ps", "-o", "time=", "-p", str(pid)], capture_output=True, text=True, check=True
    )
    return seconds_of(shown.stdout.strip())


def seconds_of(text: str) -> float:
    """Return the seconds of a time as `ps` writes it: [[days-]hours:]minutes:seconds."""
    days, _, clock = text.rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part)
    return float(days or 0) * 86_400 + seconds
