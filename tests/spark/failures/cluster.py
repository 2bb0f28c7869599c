"""A standalone Spark cluster on loopback, from the pyspark package: a master and its workers.

    with StandaloneCluster(directory, machines) as cluster:
        …--master cluster.url…
        cluster.workers[0].kill()       # with its executors, as if the machine were gone
        cluster.kill_executor(0)        # the worker starts another one

Each is a JVM in its own process group, with random ports. There is a worker on each machine, and
the master is on the first one.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.spark.failures.machine import Machine

READY_DEADLINE_S: Final = 90.0
STOP_DEADLINE_S: Final = 20.0
EXECUTOR_MB: Final = 512
DAEMON_OPTIONS: Final = (
    "-Xmx192m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dspark.master.rest.enabled=false",  # its port would not be random
)


class Daemon:
    """One JVM; the lines that it writes are collected."""

    def __init__(self, command: list[str], machine: Machine) -> None:
        self.log: list[str] = []
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=machine.environment,
            cwd=machine.work,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    def wait_for(self, pattern: str) -> str:
        """Return the first group of the first line that matches, and wait for it if needed."""
        searched = re.compile(pattern)
        deadline = time.monotonic() + READY_DEADLINE_S
        while time.monotonic() < deadline:
            is_over = not self._reader.is_alive()
            for line in self.log:
                if match := searched.search(line):
                    return match[1]
            if is_over:
                break
            time.sleep(0.05)
        raise RuntimeError(f"never wrote {pattern}:\n" + "\n".join(self.log[-40:]))

    def kill(self) -> None:
        """Send SIGKILL to the whole process group."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Send SIGTERM, then SIGKILL to the rest of the process group."""
        self._end(signal.SIGTERM)
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_DEADLINE_S)
        if self.process.poll() is not None and number == signal.SIGKILL:
            self._reader.join(STOP_DEADLINE_S)

    def _read_log(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.log.append(line.rstrip())


class StandaloneCluster:
    """A master, and workers with one core each."""

    def __init__(self, directory: Path, machines: Sequence[Machine]) -> None:
        self._directory = directory
        self.workers: list[Daemon] = []
        self.master = self._start(
            machines[0], "master.Master", "--host", "127.0.0.1", "--port", "0"
        )
        try:
            port = self.master.wait_for(r"Starting Spark master at spark://127\.0\.0\.1:(\d+)")
            self.url = f"spark://127.0.0.1:{port}"
            for machine in machines:
                self.add_worker(machine)
            for worker in self.workers:
                worker.wait_for("(Successfully registered with master)")
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def add_worker(self, machine: Machine) -> Daemon:
        """Start a worker and return it; it may not be registered yet."""
        sizes = ["--cores", "1", "--memory", f"{EXECUTOR_MB}m"]
        where = ["--host", "127.0.0.1", "--work-dir", str(self._work_of(len(self.workers)))]
        worker = self._start(machine, "worker.Worker", *sizes, *where, self.url)
        self.workers.append(worker)
        return worker

    def kill_executor(self, number: int) -> None:
        """Send SIGKILL to the executors of a worker, which goes on."""
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
        )
        worker = str(self.workers[number].process.pid)
        processes = (line.split(maxsplit=2) for line in listed.stdout.splitlines())
        executors = [int(pid) for pid, parent, *args in processes if parent == worker and args]
        assert executors, "the worker has no executor"
        for pid in executors:
            os.kill(pid, signal.SIGKILL)

    def tasks_begun(self, number: int) -> int:
        """Return how many tasks a worker's executors have begun; they must log at level INFO."""
        logs = self._work_of(number).glob("app-*/*/stderr")
        return sum(log.read_text(errors="replace").count("Running task") for log in logs)

    def _work_of(self, number: int) -> Path:
        return self._directory / f"worker-{number}"

    def stop(self) -> None:
        for daemon in (*self.workers, self.master):
            daemon.stop()

    def logs(self) -> str:
        """Return the last lines of all logs."""
        daemons = (self.master, *self.workers)
        return "\n".join(line for daemon in daemons for line in daemon.log[-40:])

    def _start(self, machine: Machine, name: str, *arguments: str) -> Daemon:
        home = machine.environment["SPARK_HOME"]
        java = Path(machine.environment.get("JAVA_HOME", "/nowhere"), "bin", "java")
        command = [str(java) if java.exists() else "java", *DAEMON_OPTIONS]
        command += ["-cp", f"{home}/jars/*", f"org.apache.spark.deploy.{name}"]
        return Daemon([*command, "--webui-port", "0", *arguments], machine)
