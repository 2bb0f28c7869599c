"""The process of one server, which outlives the program that has started it.

- The pid file names the process. The process counts as the server only if its command line names
  the server's configuration file: after a crash the pid may belong to another program, which must
  not get a signal.
- A server that somebody has started by hand with the file is found as well.
- Of a process that this program has started, the pid file is not needed: the server that begins
  empties the file before it writes it.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Final

from natsd.local_cluster.errors import LocalClusterError

POLL_S: Final = 0.01
STOP_TIMEOUT_S: Final = 60.0
READS_MAX: Final = 10
"""Attempts to read a pid file that has no pid, `POLL_S` apart."""
NATSD: Final = (sys.executable, "-m", "natsd")
"""The command that starts natsd."""

_children: Final[dict[Path, "subprocess.Popen[bytes]"]] = {}
"""The processes that this program has started, by their configuration file."""


class ProcessState(Enum):
    """What a server's process does."""

    STOPPED = "stopped"
    RUNNING = "running"
    PAUSED = "paused"


class ServerProcess:
    """The process of the server that has this configuration file."""

    def __init__(self, config: Path, pid_file: Path, log: Path) -> None:
        self._config = config
        self._pid_file = pid_file
        self._log = log

    @property
    def pid(self) -> int | None:
        """Pid of the server's process; None: the server does not run."""
        child = _children.get(self._config)
        if child is not None and child.poll() is None:
            return child.pid
        pid = self._read_pid()
        return pid if pid is not None and str(self._config) in _command_line(pid) else None

    def _read_pid(self) -> int | None:
        """Return what the pid file says; None: it names no process.

        A file without a pid, as it is for a moment at a start, is read up to `READS_MAX` times.
        """
        for _ in range(READS_MAX):
            try:
                return int(self._pid_file.read_text())
            except OSError:
                return None
            except ValueError:
                time.sleep(POLL_S)
        return None

    @property
    def state(self) -> ProcessState:
        """What the process does."""
        pid = self.pid
        if pid is None:
            return ProcessState.STOPPED
        return ProcessState.PAUSED if _is_stopped(pid) else ProcessState.RUNNING

    def start(self, program: Sequence[str] = NATSD) -> None:
        """Start the server in a session of its own; its output is added to the log.

        Returns before the server is ready. Raises LocalClusterError if there is no such program.
        """
        command = [*program, "-c", str(self._config)]
        try:
            with self._log.open("ab") as log:
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise LocalClusterError(f"{program[0]}: {error.strerror}") from None
        _children[self._config] = child
        self._pid_file.write_text(f"{child.pid}\n")  # the server writes it too, but only later

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; return whether the server runs."""
        pid = self.pid
        with contextlib.suppress(ProcessLookupError):
            if pid is not None:
                os.kill(pid, number)
                return True
        return False

    def stop(self) -> None:
        """Ask the server to stop in order; a paused one goes on first."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """End the process at once by SIGKILL, and wait for the end."""
        self.send(signal.SIGKILL)
        self.wait()

    def pause(self) -> None:
        """Hold the process by SIGSTOP: connections stay open, and nothing is answered.

        Returns when it stands still.
        """
        give_up_at = time.monotonic() + STOP_TIMEOUT_S
        self.send(signal.SIGSTOP)
        while self.state is ProcessState.RUNNING and time.monotonic() < give_up_at:
            time.sleep(POLL_S)

    def resume(self) -> None:
        """Let a paused process go on."""
        self.send(signal.SIGCONT)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Return whether the process has ended, or ends within the time."""
        give_up_at = time.monotonic() + timeout_s
        while self.pid is not None:
            if time.monotonic() > give_up_at:
                return False
            time.sleep(POLL_S)
        return True


def _command_line(pid: int) -> str:
    """Return the command line of a process; empty: there is no such process."""
    if Path("/proc/self/cmdline").exists():
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "surrogateescape")
        return ""
    return _ps(pid, "command=")


def _is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped the process."""
    if Path("/proc/self/stat").exists():
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        return False
    return _ps(pid, "stat=").startswith("T")


def _ps(pid: int, field: str) -> str:
    """Return what `ps` says of a process, on systems without /proc."""
    command = ["ps", "-ww", "-o", field, "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
