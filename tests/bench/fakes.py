"""Fakes of a server and of measurements, so that no test depends on speed."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import ClassVar

from natsd.bench.arms import BenchServer
from natsd.bench.compare import Cell, RowResult
from natsd.bench.frames import PING, PONG
from natsd.bench.measurement import Measurement
from natsd.bench.rows import METRICS, Row

INFO = b'INFO {"version":"0","max_payload":1048576}\r\n'


@contextmanager
def server_that_sends(
    stream: bytes, *, then_closes: bool = False
) -> Iterator[tuple[int, threading.Event]]:
    """Yield the port of a server for one client, and the event that makes it send `stream`.

    It answers the PINGs of the handshake and, unless it closes, the one after the stream.
    """
    begin = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, begin, stream, then_closes))
        thread.start()
        try:
            yield listener.getsockname()[1], begin
        finally:
            begin.set()
            thread.join(10)


def _serve(
    listener: socket.socket, begin: threading.Event, stream: bytes, then_closes: bool
) -> None:
    client, _ = listener.accept()
    with client, suppress(ConnectionError):
        client.sendall(INFO)
        pings = 0
        while pings < 2:
            pings += client.recv(1 << 16).count(PING)
        client.sendall(PONG + INFO + PONG)
        begin.wait(10)
        client.sendall(stream)
        if not then_closes and client.recv(1 << 16).endswith(PING):
            client.sendall(PONG)


@dataclass(frozen=True)
class FakeArm:
    """A fake server whose starts and stops are noted in a shared diary."""

    name: str
    diary: list[str]
    note: str = ""

    @contextmanager
    def running(self) -> Iterator[BenchServer]:
        self.diary.append(f"start {self.name}")
        yield BenchServer("127.0.0.1", 0, {"version": "1.0", "name": self.name})
        self.diary.append(f"stop {self.name}")


@dataclass(frozen=True)
class FakeScenario:
    """A scenario that handles a million messages per second on every server."""

    diary: list[str] = field(compare=False)
    first_size: int | None = None
    fresh: ClassVar[bool] = False

    def run(self, server: BenchServer, size: int) -> Measurement:
        self.diary.append(f"{server.info['name']} {size}")
        return Measurement({"rate": 1e6}, seconds=size / 1e6)


@dataclass(frozen=True)
class FreshScenario(FakeScenario):
    fresh: ClassVar[bool] = True


def row(goal: float | None = None, metric: str = "messages") -> Row:
    return Row("key", "a row", FakeScenario([]), "rate", METRICS[metric], goal)


def result(
    *medians: float, goal: float | None = None, metric: str = "messages", missing: int = 0
) -> RowResult:
    """Return a finished row, with our server first; our server lost `missing` messages."""
    cells = [Cell(values=[value]) for value in medians]
    cells[0].missing = missing
    return RowResult(row(goal, metric), cells)


def texts(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(" | ".join(cells) for cells in rows)
