"""A process that stores things, is killed midway, and has reported what it had acknowledged.

    lines = kill_midway(SCRIPT, "arguments", lines=100, delay_s=0.003)

The script writes one line for each acknowledgement (`acknowledge("…")` below) and runs for ever. It
is killed with SIGKILL `delay_s` seconds after it has written `lines` lines. Everything that it had
written by then was acknowledged. The test suite runs few rounds; NATSD_TORTURE=100 runs a hundred
times as many.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TORTURE = int(os.environ.get("NATSD_TORTURE", "1"))


def acknowledge(line: str) -> None:
    """Write one line to stdout; the script under test calls it.

    The operating system has the line when the call returns, so a later kill does not lose it.
    """
    os.write(1, line.encode() + b"\n")


def kill_midway(script: str, *arguments: str, lines: int, delay_s: float) -> list[str]:
    """Run the script, kill it `delay_s` after its first `lines` lines, and return its whole lines.

    Raises AssertionError if the script ends by itself.
    """
    # The build under test may be on the path already; it takes precedence over the sources.
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
        killer = threading.Timer(delay_s, process.kill)  # the script's output is read meanwhile
        killer.start()
        written += process.stdout.readlines()
        killer.join()
        assert process.wait() < 0, process.stderr.read().decode()
    return [line.decode().rstrip("\n") for line in written if line.endswith(b"\n")]
