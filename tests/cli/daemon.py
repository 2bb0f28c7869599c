"""natsd as a process of its own, and the lines that it logs."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DEADLINE_S = 30.0

LINE = re.compile(r"\[(\d+)\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[([A-Z]{3})\] (.*)")


class Daemon:
    """A natsd process and the lines of its log so far."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "natsd", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []

    def read_until(self, text: str) -> str:
        """The first line from here on that contains the text."""
        assert self.process.stderr
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if text in line:
                return line
        raise AssertionError(f"never logged: {text}; but {self.lines}")

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send the signal, read the rest of the log, give the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Read the rest of the log, give the exit code."""
        _, rest = self.process.communicate(timeout=DEADLINE_S)
        self.lines += rest.splitlines()
        return self.process.returncode

    @property
    def texts(self) -> list[str]:
        """The log without times, as `INF Server is ready`, and without a line about open files."""
        matches = [LINE.fullmatch(line) for line in self.lines]
        assert all(matches), self.lines
        assert {match[1] for match in matches if match} == {str(self.process.pid)}
        texts = [f"{match[2]} {match[3]}" for match in matches if match]
        return [text for text in texts if not text.startswith("WRN Open files are limited")]


Start = Callable[..., Daemon]


@contextmanager
def running_daemons() -> Iterator[Start]:
    """Starts daemons on free ports of the loopback; none outlives the context."""
    daemons: list[Daemon] = []

    def start_one(*arguments: str) -> Daemon:
        daemons.append(Daemon("-a", "127.0.0.1", "-p", "-1", *arguments))
        return daemons[-1]

    try:
        yield start_one
    finally:
        for daemon in daemons:
            if daemon.process.poll() is None:
                daemon.process.kill()
            daemon.process.communicate()
