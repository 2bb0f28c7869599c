"""The servers that are compared: how to start one, reach it, know its version, see its memory.

An arm is a command line in which `{port}` stands for the port to listen on. Each server
listens on 127.0.0.1 at a free port and is ended by its process id. What is already running
elsewhere can be an arm too, by its URL; its memory is then out of sight.
"""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable
from urllib.parse import urlsplit

from natsd.bench import wire

HOST = "127.0.0.1"
START_SECONDS_MAX = 15.0
STOP_SECONDS_MAX = 10.0
POLL_SECONDS = 0.002
LOG_TAIL_BYTES = 600
DEFAULT_PORT = 4222
NATSD_COMMAND = (sys.executable, "-m", "natsd", "-a", HOST, "-p", "{port}")


class ArmError(Exception):
    """A server that cannot be measured; the text says why."""


@dataclass
class Server:
    """A running server."""

    host: str
    port: int
    info: dict[str, Any]
    pid: int | None = None
    start_seconds: float | None = None
    """From starting the process to reading its first INFO; None if it ran before."""

    @property
    def version(self) -> str:
        """What it says of itself in INFO; natsd shows its own beside the NATS level."""
        return str(self.info.get("natsd") or self.info.get("version", "?"))

    def resident_bytes(self) -> int | None:
        """Its resident memory, if its process is ours to see."""
        return None if self.pid is None else resident_bytes(self.pid)


class AnyArm(Protocol):
    """What can be measured: a name, a note beside its version, and a server while it runs."""

    @property
    def name(self) -> str:
        """How the table calls it."""

    @property
    def note(self) -> str:
        """What follows the version, such as the number of cores."""

    def running(self) -> AbstractContextManager[Server]:
        """The server, ready for connections inside the `with`."""


@runtime_checkable
class Confinable(AnyArm, Protocol):
    """A server that is started, and may be told which cores to use."""

    def confined(self, cores: frozenset[int]) -> AnyArm:
        """The same server on these cores."""


@dataclass(frozen=True)
class Arm:
    """A server to start: its command, extra environment, and the cores it may use (or all)."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    cores: frozenset[int] | None = None
    note: str = ""

    @contextmanager
    def running(self) -> Iterator[Server]:
        """Start the server, wait until it greets; end it afterwards."""
        port = free_port()
        command = [part.replace("{port}", str(port)) for part in self.command]
        with tempfile.TemporaryFile() as log:
            started = time.monotonic()
            process = self._start(command, log.fileno())
            try:
                info = _await_info(process, port, log.fileno())
                yield Server(HOST, port, info, process.pid, time.monotonic() - started)
            finally:
                _end(process)

    def confined(self, cores: frozenset[int]) -> "Arm":
        """The same server on these cores."""
        return replace(self, cores=cores)

    def _start(self, command: list[str], log: int) -> "subprocess.Popen[bytes]":
        with confined_to(self.cores):
            try:
                return subprocess.Popen(
                    command,
                    env={**os.environ, **self.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            except OSError as error:
                raise ArmError(f"cannot start {command[0]}: {error.strerror}") from error


@dataclass(frozen=True)
class RemoteArm:
    """A server that runs already."""

    name: str
    host: str
    port: int
    note: ClassVar[str] = ""

    @contextmanager
    def running(self) -> Iterator[Server]:
        """Nothing to start or end."""
        try:
            with wire.open_socket(self.host, self.port) as sock:
                info = wire.read_info(sock)
        except (OSError, wire.LoadError) as error:
            raise ArmError(f"cannot reach {self.host}:{self.port}: {error}") from error
        yield Server(self.host, self.port, info)


def natsd_arm() -> Arm:
    """This natsd, run by this Python."""
    return Arm("natsd", NATSD_COMMAND)


def command_arm(text: str) -> Arm:
    """The server named on the command line: `natsd`, a nats-server, or any command with {port}."""
    if text == "natsd":
        return natsd_arm()
    words = shlex.split(text)
    if not words or shutil.which(words[0]) is None:
        raise ArmError(f"no such program: {words[0] if words else repr(text)}")
    if "{port}" not in text:
        words += ["-a", HOST, "-p", "{port}"]
    return Arm(Path(words[0]).name, tuple(words))


def remote_arm(url: str) -> RemoteArm:
    """The running server at `url`: nats://host:port, or host:port."""
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    if not parts.hostname:
        raise ArmError(f"no host in {url!r}")
    port = parts.port or DEFAULT_PORT
    return RemoteArm(f"{parts.hostname}:{port}", parts.hostname, port)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
        return port


def resident_bytes(pid: int) -> int:
    """Resident memory of a process, from /proc where there is one, else from ps."""
    statm = Path(f"/proc/{pid}/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    shown = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True
    )
    return int(shown.stdout) * 1024


@contextmanager
def confined_to(cores: frozenset[int] | None) -> Iterator[None]:
    """Let processes started inside use only these cores (Linux)."""
    if cores is None:
        yield
        return
    if sys.platform != "linux":
        raise ArmError("choosing cores needs Linux")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _await_info(process: "subprocess.Popen[bytes]", port: int, log: int) -> dict[str, Any]:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ArmError(f"the server ended at once: {_log_tail(log)}")
        try:
            with wire.open_socket(HOST, port) as sock:
                return wire.read_info(sock)
        except (OSError, wire.LoadError):
            time.sleep(POLL_SECONDS)
    raise ArmError(f"the server did not accept connections: {_log_tail(log)}")


def _log_tail(log: int) -> str:
    size = os.fstat(log).st_size
    tail = os.pread(log, LOG_TAIL_BYTES, max(0, size - LOG_TAIL_BYTES))
    return tail.decode(errors="replace").strip() or "it logged nothing"


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
