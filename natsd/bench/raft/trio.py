"""Three processes on this machine, each with a member of every group."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from natsd.bench.arms import ArmError
from natsd.local_cluster.plan import free_ports

SERVERS = (1, 2, 3)
START_SECONDS_MAX = 60.0
ANSWER_SECONDS_MAX = 60.0
POLL_S = 0.1


class Trio:
    """The processes; ended together."""

    def __init__(self, directory: Path, groups: int) -> None:
        self._directory = directory
        self._groups = groups
        self._ports = dict(zip(SERVERS, free_ports("127.0.0.1", len(SERVERS)), strict=True))
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, server: int) -> None:
        """Start one of the processes."""
        settings = {
            "server": server,
            "ports": self._ports,
            "directory": str(self._directory / str(server)),
            "groups": self._groups,
        }
        self.processes[server] = subprocess.Popen(
            [sys.executable, "-m", "natsd.bench.raft.member", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, server: int, line: str) -> None:
        """Send a line to a process, whose answer `answer` returns."""
        stdin = self.processes[server].stdin
        assert stdin is not None
        stdin.write(line.encode() + b"\n")
        stdin.flush()

    def answer(self, server: int, busy_s: float = 0.0) -> dict[str, float]:
        """Wait for the answer of a process that works for `busy_s`; raises ArmError without one."""
        stdout = self.processes[server].stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], busy_s + ANSWER_SECONDS_MAX)
        line = stdout.readline() if ready else b""
        if not line:
            raise ArmError(f"server {server} of the group gave no answer")
        answer: dict[str, float] = json.loads(line)
        return answer

    def states(self) -> dict[int, dict[str, float]]:
        """Return what each process says of its groups."""
        for server in SERVERS:
            self.ask(server, "leads")
        return {server: self.answer(server) for server in SERVERS}

    def leader(self) -> int:
        """Wait until all groups have a leader; return the server that leads the first group."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            states = self.states()
            leads = [server for server in SERVERS if states[server]["leads"]]
            if len(leads) == 1 and sum(each["led"] for each in states.values()) == self._groups:
                return leads[0]
            time.sleep(POLL_S)
        raise ArmError("the groups have no leader")

    def wait_until_resting(self) -> None:
        """Wait until all groups are quiescent."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if all(each["resting"] == self._groups for each in self.states().values()):
                return
            time.sleep(POLL_S)
        raise ArmError("the groups do not rest")

    def __enter__(self) -> Self:
        for server in SERVERS:
            self.start(server)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self.processes.values():
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()
            if kind is not None:
                process.kill()
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
