"""Kills a process that stores things, and says what it had acknowledged by then.

    lines = kill_midway(SCRIPT, "arguments", lines=100, delay_s=0.003)

The script writes a line for each acknowledgement, `acknowledge("…")` below, and goes on for ever;
it is killed (SIGKILL) a moment after that many lines. What it wrote by then it had acknowledged.
Rounds are few in the test suite; NATSD_TORTURE=100 makes a hundred times as many.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TORTURE = int(os.environ.get("NATSD_TORTURE", "1"))


def acknowledge(line: str) -> None:
    """Called by the script: the line is out when this returns, whatever happens then."""
    os.write(1, line.encode() + b"\n")


def kill_midway(script: str, *arguments: str, lines: int, delay_s: float) -> list[str]:
    """Run the script; kill it `delay_s` after it wrote so many lines; all whole lines it wrote."""
    # The build under test may be on the path already, and goes before the sources.
    inherited = filter(None, [os.environ.get("PYTHONPATH"), str(ROOT), *sys.path])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(inherited)}
    with subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        written = []
        for _ in range(lines):
            line = process.stdout.readline()
            if not line:
                raise AssertionError(process.stderr.read().decode())
            written.append(line)
        killer = threading.Timer(delay_s, process.kill)  # while its output is read: it never blocks
        killer.start()
        written += process.stdout.readlines()
        killer.join()
        assert process.wait() < 0, process.stderr.read().decode()
    return [line.decode().rstrip("\n") for line in written if line.endswith(b"\n")]
