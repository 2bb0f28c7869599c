r"""One client connection over a raw socket, read frame by frame, each wait with a deadline.

    with Wire(server.address) as alice:
        alice.send(b"CONNECT {}\r\nSUB foo 1\r\n")
        alice.sync()                                   # PING ... PONG: all of it has been processed
        assert alice.read_frame() == b"MSG foo 1 5\r\nhello\r\n"

Promises:
- A frame is a control line, or a MSG/HMSG line with its payload and the CRLF after it; the contents
  of a payload are never mistaken for a control line.
- The server's own PINGs (it measures the round trip about two seconds after a client connects) are
  answered and left out, unless `answer_pings` is switched off.
- Nothing here sleeps; a read that takes longer than `deadline_s` fails the test that waits for it.
"""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any, Self

DEADLINE_S = 30.0
READ_BYTES = 65536

Address = tuple[str, int]


class Closed(Exception):
    """The server closed the connection; `rest` is the part of an unfinished frame that arrived."""

    def __init__(self, rest: bytes = b"") -> None:
        super().__init__(f"connection closed by the server, {rest!r} unread")
        self.rest = rest


class Wire:
    """The client's end of one connection, opened at once; its INFO is kept in `info`."""

    def __init__(
        self,
        address: Address,
        *,
        deadline_s: float = DEADLINE_S,
        read_info: bool = True,
        source_ip: str = "",
    ) -> None:
        """Connect; `source_ip` is the address of this end, empty: the system chooses."""
        source = (source_ip, 0) if source_ip else None
        self.socket = socket.create_connection(address, deadline_s, source)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answer_pings = True
        self._unread = bytearray()
        self.info_line = self.read_frame() if read_info else b""

    @property
    def info(self) -> dict[str, Any]:
        """The fields of the server's first INFO, in the order in which it sent them."""
        return parse_info(self.info_line)

    def send(self, data: bytes) -> None:
        """Send the bytes unchanged; if the server has closed, the next read reports it."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def read_frame(self) -> bytes:
        """Return the next frame; raises Closed if the server has closed."""
        while True:
            frame = self._take_line()
            if frame.startswith((b"MSG ", b"HMSG ")):
                payload_bytes = int(frame.split()[-1])
                frame += self._take(payload_bytes + 2)
            if frame != b"PING\r\n" or not self.answer_pings:
                return frame
            self.send(b"PONG\r\n")

    def read_message(self) -> bytes:
        """Return the next MSG or HMSG; other frames are skipped."""
        while True:
            frame = self.read_frame()
            if frame.startswith((b"MSG ", b"HMSG ")):
                return frame

    def sync(self) -> list[bytes]:
        """Send a PING and return the frames that arrive before its PONG."""
        self.send(b"PING\r\n")
        frames = []
        while (frame := self.read_frame()) != b"PONG\r\n":
            frames.append(frame)
        return frames

    def read_until_closed(self) -> bytes:
        """Return all bytes until the server closes; fails if it leaves the connection open."""
        frames = []
        while True:
            try:
                frames.append(self.read_frame())
            except Closed as closed:
                return b"".join(frames) + closed.rest

    def half_close(self) -> None:
        """Send no more; answers of the server can still be read."""
        with contextlib.suppress(OSError):  # the server may have closed already
            self.socket.shutdown(socket.SHUT_WR)

    def leave(self) -> None:
        """Close, and wait until the server has noticed it and delivers nothing here any more."""
        self.half_close()
        self.read_until_closed()
        self.close()

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _take_line(self) -> bytes:
        searched_bytes = 0
        while (end := self._unread.find(b"\r\n", searched_bytes)) < 0:
            searched_bytes = max(0, len(self._unread) - 1)
            self._receive()
        return self._take(end + 2)

    def _take(self, size: int) -> bytes:
        while len(self._unread) < size:
            self._receive()
        taken = bytes(self._unread[:size])
        del self._unread[:size]
        return taken

    def _receive(self) -> None:
        try:
            data = self.socket.recv(READ_BYTES)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Closed(bytes(self._unread))
        self._unread += data


def parse_info(line: bytes) -> dict[str, Any]:
    """Return the JSON of an INFO line."""
    assert line.startswith(b"INFO {"), line
    assert line.endswith(b"} \r\n"), line
    fields: dict[str, Any] = json.loads(line[len(b"INFO ") :])
    return fields
