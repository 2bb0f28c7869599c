"""`natsd pipeline …`, or a program with Spark, as a user calls it: a process on a machine.

command = Command(machine, directory, "archive", "ORDERS", str(table), "-s", url)
command.kill()                      # the query's Python, its JVM, and their workers
done = command.wait()               # → code, stdout, stderr
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.spark.failures.machine import Machine
from tests.spark.failures.waiting import DEADLINE_S

QUICK_START: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SMALL: Final = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": f"{QUICK_START} -Xss8m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.sql.shuffle.partitions": "1",
}


@dataclass(frozen=True)
class Ended:
    """The exit code and the output of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        """The object that `--json` printed."""
        found: dict[str, Any] = json.loads(self.stdout)
        return found

    @property
    def outcome(self) -> dict[str, Any]:
        """The object that `--json` printed; the command must have succeeded."""
        assert self.code == 0, self.stderr
        return self.json


class Command:
    """One `natsd pipeline` that runs in its own process group.

    `job` is one of its jobs, or the path of a program that takes `--master` and `--conf` too.
    """

    def __init__(
        self,
        machine: Machine,
        directory: Path,
        job: str,
        *arguments: str,
        master: str = "local[2]",
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        number = len(list(directory.glob("*.stderr")))
        self._out = directory / f"{number}.{Path(job).stem}.stdout"
        self._err = directory / f"{number}.{Path(job).stem}.stderr"
        configuration = {**SMALL, **(settings or {})}
        given = [f"--conf={name}={value}" for name, value in configuration.items()]
        called = [job] if job.endswith(".py") else ["-m", "natsd", "pipeline", job]
        command = [str(machine.python), *called, *arguments]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*command, "--master", master, *given],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**machine.environment, **(environment or {})},
                cwd=machine.work,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """Send SIGKILL to all processes at once, as if the machine were gone."""
        self._signal_all(signal.SIGKILL)
        self.process.wait()

    def kill_python(self) -> None:
        """Send SIGKILL to the query's Python; the JVM notices a closed pipe and may still act."""
        self.process.kill()
        self.process.wait()

    def interrupt(self) -> None:
        """Send SIGINT to the whole group, as a terminal does on Ctrl-C."""
        self._signal_all(signal.SIGINT)

    def terminate(self) -> None:
        """Send SIGTERM as a service manager does."""
        self.process.terminate()

    def wait(self, timeout_s: float = DEADLINE_S) -> Ended:
        """Wait for the end of the command; no process of it is left then."""
        try:
            code = self.process.wait(timeout_s)
        finally:
            self._signal_all(signal.SIGKILL)
        return Ended(code, self._out.read_text(), self._err.read_text())

    @property
    def stderr(self) -> str:
        """The standard error so far."""
        return self._err.read_text()

    def _signal_all(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
