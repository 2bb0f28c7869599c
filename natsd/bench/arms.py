"""The servers that are compared: starting one, connecting to it, its version and its memory.

An arm is one of the compared servers. Its command line contains `{port}` in place of the port to
listen on. Each server listens on 127.0.0.1 at a free port and is stopped by its process id. A
server that runs already can be an arm too, by its URL; the memory of such a server cannot be
measured.
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
    """A server cannot be measured; the text says why."""


@dataclass
class BenchServer:
    """A running server."""

    host: str
    port: int
    info: dict[str, Any]
    pid: int | None = None
    start_seconds: float | None = None
    """Seconds from the start of the process to its first INFO; None if the server ran before."""
    unsupported: str = ""
    """Why the server cannot run the row; empty: it can."""
    config: Path | None = None
    """The configuration with which it was started; None: it has none."""
    peer: "BenchServer | None" = None
    """Another server of its cluster, where subscribers of a run connect; None: there is none."""

    @property
    def version(self) -> str:
        """The version that INFO tells; for natsd its own, not the NATS version it conforms to."""
        return str(self.info.get("natsd") or self.info.get("version", "?"))

    def resident_bytes(self) -> int | None:
        """Return the server's resident memory in bytes, or None if its process is not ours."""
        return None if self.pid is None else resident_bytes(self.pid)


class AnyArm(Protocol):
    """A server that can be measured: its name, a note for the table, and a way to run it."""

    @property
    def name(self) -> str:
        """The server's name in the table."""

    @property
    def note(self) -> str:
        """Text that the table shows after the version, such as the number of cores."""

    def running(self) -> AbstractContextManager[BenchServer]:
        """Return a context manager in which the server runs and accepts connections."""


@runtime_checkable
class Confinable(AnyArm, Protocol):
    """A server that the benchmark starts, and that can be limited to some cores."""

    def confined(self, cores: frozenset[int]) -> AnyArm:
        """Return the same server, limited to these cores."""


@runtime_checkable
class Configurable(AnyArm, Protocol):
    """A server that the benchmark starts, and that reads a configuration file."""

    def configured(self, config: Path) -> AnyArm:
        """Return the same server, with this configuration."""


@dataclass(frozen=True)
class Arm:
    """A server to start: its command, extra environment variables, and its cores (None: all)."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    cores: frozenset[int] | None = None
    note: str = ""

    @contextmanager
    def running(self) -> Iterator[BenchServer]:
        """Start the server, wait for its INFO, and stop the server at the end of the `with`.

        Raises ArmError if the server does not start or does not accept connections.
        """
        port = free_port()
        command = [part.replace("{port}", str(port)) for part in self.command]
        with tempfile.TemporaryFile() as log:
            started = time.monotonic()
            process = self._start(command, log.fileno())
            try:
                info = _await_info(process, port, log.fileno())
                yield BenchServer(HOST, port, info, process.pid, time.monotonic() - started)
            finally:
                _end(process)

    def confined(self, cores: frozenset[int]) -> "Arm":
        """Return the same server, limited to these cores."""
        return replace(self, cores=cores)

    def configured(self, config: Path) -> "Arm":
        """Return the same server, with this configuration."""
        return replace(self, command=(*self.command, "-c", str(config)))

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
    def running(self) -> Iterator[BenchServer]:
        """Read the server's INFO; the server is neither started nor stopped.

        Raises ArmError if the server cannot be reached.
        """
        try:
            with wire.open_socket(self.host, self.port) as sock:
                info = wire.read_info(sock)
        except (OSError, wire.LoadError) as error:
            raise ArmError(f"cannot reach {self.host}:{self.port}: {error}") from error
        yield BenchServer(self.host, self.port, info)


def natsd_arm() -> Arm:
    """Return the arm of this natsd, run by this Python interpreter."""
    return Arm("natsd", NATSD_COMMAND)


def command_arm(text: str) -> Arm:
    """Return the arm for an argument: `natsd`, a program, or a command that contains `{port}`.

    A program without `{port}` is run with `-a 127.0.0.1 -p {port}`, as nats-server takes them.
    Raises ArmError if there is no such program.
    """
    if text == "natsd":
        return natsd_arm()
    words = shlex.split(text)
    if not words or shutil.which(words[0]) is None:
        raise ArmError(f"no such program: {words[0] if words else repr(text)}")
    if "{port}" not in text:
        words += ["-a", HOST, "-p", "{port}"]
    return Arm(Path(words[0]).name, tuple(words))


def remote_arm(url: str) -> RemoteArm:
    """Return the arm of the running server at `url`: `nats://host:port` or `host:port`.

    Raises ArmError if the URL names no host.
    """
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    if not parts.hostname:
        raise ArmError(f"no host in {url!r}")
    port = parts.port or DEFAULT_PORT
    return RemoteArm(f"{parts.hostname}:{port}", parts.hostname, port)


def free_port() -> int:
    """Return a TCP port that nothing listened on a moment ago."""
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
        return port


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes, from /proc or else from `ps`."""
    statm = Path(f"/proc/{pid}/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    shown = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True
    )
    return int(shown.stdout) * 1024


@contextmanager
def confined_to(cores: frozenset[int] | None) -> Iterator[None]:
    """Limit processes that are started in the `with` to these cores; None: do not limit them.

    Raises ArmError on systems other than Linux if cores are given.
    """
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
