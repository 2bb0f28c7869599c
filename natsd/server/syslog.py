"""The log by syslog, of this machine or another one, in nats-server's format.

    <29>Jan  2 15:04:05 natsd[4711]: Server is ready                        a socket of this machine
    <29>2026-01-02T15:04:05Z host natsd[4711]: Server is ready              udp:// and tcp://

- Logging a line never blocks: it is queued, and a thread sends it. The queue has at most
  `QUEUE_BYTES_MAX`. If it is full, new lines are lost, and a later line says how many.
- If the syslog service is gone, the thread connects again, every `RETRY_S`. `flush` waits at most
  `FLUSH_S` for lines to be sent; after `close` they are sent if the service takes them.
- A line has at most `LINE_BYTES_MAX`; the rest of a longer one is cut. Each line of a traceback is
  a line of its own, so none has a line end within.
- Facility: daemon. Severities are nats-server's: INF and TRC are notices, FTL is critical.

Source: nats-server's logger/syslog.go, and Go's log/syslog, which it uses.
"""

import contextlib
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from natsd.config.levels import TRACE
from natsd.config.syslog_address import SyslogAddress
from natsd.core.program import program_name

QUEUE_BYTES_MAX: Final = 8 << 20
LINE_BYTES_MAX: Final = 32 << 10
SEND_S: Final = 5.0
"""Seconds that a connection, or the sending of a line, may take."""
RETRY_S: Final = 1.0
FLUSH_S: Final = 1.0
LOCAL_PATHS: Final = ("/dev/log", "/var/run/syslog", "/var/run/log")
FACILITY: Final = 3 << 3
SEVERITIES: Final = {
    logging.CRITICAL: 2,
    logging.ERROR: 3,
    logging.WARNING: 4,
    logging.INFO: 5,
    TRACE: 5,
    logging.DEBUG: 7,
}


def connect(address: SyslogAddress) -> socket.socket:
    """Return a socket that is connected to a syslog service. Blocks; raises OSError."""
    if address.is_local:
        return _connect_local(address.paths or LOCAL_PATHS)
    if address.network == "tcp":
        return socket.create_connection((address.host, address.port), SEND_S)
    error = OSError("no such host")
    for family, kind, *_, place in socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_DGRAM
    ):
        try:
            return _connected(family, kind, place)
        except OSError as failed:
            error = failed
    raise error


def _connect_local(paths: tuple[str, ...]) -> socket.socket:
    """Return a socket connected to the first path that accepts datagrams, or else a stream."""
    error = OSError("Unix syslog delivery error")
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        for path in paths:
            try:
                return _connected(socket.AF_UNIX, kind, path)
            except OSError as failed:
                if len(paths) == 1:
                    error = failed
    raise error


def _connected(family: int, kind: int, place: tuple[Any, ...] | str) -> socket.socket:
    made = socket.socket(family, kind)
    made.settimeout(SEND_S)
    try:
        made.connect(place)
    except BaseException:
        made.close()
        raise
    return made


class SyslogHandler(logging.Handler):
    """Handler that sends records to a syslog service, by a thread of its own."""

    def __init__(self, address: SyslogAddress) -> None:
        super().__init__()
        self._address = address
        self._tag = f"{program_name()}[{os.getpid()}]"
        self._host = socket.gethostname() or "localhost"
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._lost = 0
        self._is_idle = False
        self._is_closing = threading.Event()
        self._changed = threading.Condition()
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._send_lines, name="natsd-syslog", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the lines of a record; never blocks."""
        lines = list(self._lines(record))
        with self._changed:
            if self._is_closing.is_set():
                return
            if self._queued_bytes + sum(map(len, lines)) > QUEUE_BYTES_MAX:
                self._lost += 1
                return
            self._append(lines)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until what is queued is sent, but at most FLUSH_S."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_idle and not self._queue, FLUSH_S)

    def close(self) -> None:
        """Let the thread end when it has sent what is queued; later lines are lost."""
        with self._changed:
            self._is_closing.set()
            self._changed.notify_all()
        super().close()

    def _append(self, lines: list[bytes]) -> None:
        self._queue.extend(lines)
        self._queued_bytes += sum(map(len, lines))

    def _lines(self, record: logging.LogRecord) -> Iterator[bytes]:
        """Yield the record as lines of syslog, each with a line end."""
        priority = FACILITY | SEVERITIES.get(record.levelno, SEVERITIES[logging.INFO])
        moment = datetime.fromtimestamp(record.created).astimezone()
        if self._address.is_local:
            when = f"{moment:%b} {moment.day:2} {moment:%H:%M:%S}"
        else:
            zone = moment.isoformat(timespec="seconds").replace("+00:00", "Z")
            when = f"{zone} {self._host}"
        for line in self.format(record).split("\n"):
            text = f"<{priority}>{when} {self._tag}: {line}".encode("utf-8", "replace")
            yield text[: LINE_BYTES_MAX - 1] + b"\n"

    def _send_lines(self) -> None:
        """Send queued lines until the handler closes; the thread's function."""
        while (line := self._next()) is not None:
            while not self._sent(line):
                if self._is_closing.wait(RETRY_S):
                    return
        self._disconnect()

    def _next(self) -> bytes | None:
        """Wait for a line and take it from the queue; None: the handler is closing."""
        with self._changed:
            while not self._queue:
                self._is_idle = True
                self._changed.notify_all()
                if self._is_closing.is_set():
                    return None
                self._changed.wait()
            self._is_idle = False
            line = self._queue.popleft()
            self._queued_bytes -= len(line)
            if self._lost and self._queued_bytes < QUEUE_BYTES_MAX // 2:
                lost, self._lost = self._lost, 0
                text = f"{lost} entries of the log are lost: the syslog service was too slow"
                self._append(list(self._lines(_warning(text))))
            return line

    def _sent(self, line: bytes) -> bool:
        """Send a line, after connecting or connecting again; False: there is no service."""
        for _ in range(2):
            try:
                if self._socket is None:
                    self._socket = connect(self._address)
                self._socket.sendall(line)
                return True
            except OSError:
                self._disconnect()
        return False

    def _disconnect(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None


def _warning(text: str) -> logging.LogRecord:
    record = logging.LogRecord("natsd", logging.WARNING, __file__, 0, text, (), None)
    record.created = time.time_ns() / 1e9
    return record
