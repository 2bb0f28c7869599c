"""A server that answers as a test says: one answer function, without JetStream.

def answer(ask: Ask) -> bytes | None: ...

with FakeServer(answer) as server: NatsClient(options(server.url))

Promise
- Each PUB is given to `answer`, in order, and the returned bytes are sent unchanged. `frame_to`
  makes messages to the requester. None closes the connection.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tests.fuzz.fuzz_spark_frames import hmsg

INFO = {"server_id": "F", "version": "2.14.5", "headers": True, "max_payload": 1 << 20}


@dataclass
class Ask:
    """One request on connection number `connection`, counted from 1."""

    connection: int
    subject: str
    reply: str
    payload: bytes
    sid: int

    @property
    def body(self) -> dict[str, Any]:
        return dict(json.loads(self.payload)) if self.payload else {}

    def status(self, text: str, *lines: str) -> bytes:
        head = "\r\n".join([f"NATS/1.0 {text}", *lines, "", ""])
        return hmsg(self.sid, head.encode(), b"", self.reply.encode())

    def json(self, answer: object) -> bytes:
        data = json.dumps(answer).encode()
        return b"MSG %b %d %d\r\n%b\r\n" % (self.reply.encode(), self.sid, len(data), data)

    def row(self, sequence: int, data: bytes = b"x", pending: int = 9) -> bytes:
        """Return the frame of one message of a batched direct get."""
        head = (
            f"NATS/1.0\r\nNats-Stream: S\r\nNats-Subject: s\r\nNats-Sequence: {sequence}\r\n"
            f"Nats-Time-Stamp: 2026-11-21T12:00:00Z\r\nNats-Num-Pending: {pending}\r\n"
            f"Nats-Last-Sequence: {sequence - 1}\r\n\r\n"
        )
        return hmsg(self.sid, head.encode(), data, self.reply.encode())

    def end(self, last: int, pending: int) -> bytes:
        return self.status("204 EOB", f"Nats-Num-Pending: {pending}", f"Nats-Last-Sequence: {last}")


Answer = Callable[[Ask], bytes | None]


class FakeServer:
    def __init__(self, answer: Answer, **info: Any) -> None:
        self._answer = answer
        self._info = {**INFO, **info}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._peers: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _accept(self) -> None:
        """Accept connections, one after the other."""
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self._peers.append(peer)
            self.connections += 1
            with peer, contextlib.suppress(OSError):
                self._serve(peer)

    def _serve(self, peer: socket.socket) -> None:
        peer.sendall(f"INFO {json.dumps(self._info)}\r\n".encode())
        sids: dict[str, int] = {}
        with peer.makefile("rb") as lines:
            while line := lines.readline():
                verb, *words = line.decode().split()
                if verb == "PING":
                    peer.sendall(b"PONG\r\n")
                elif verb == "SUB":
                    sids[words[0]] = int(words[-1])
                elif verb in ("PUB", "HPUB"):
                    payload = lines.read(int(words[-1]) + 2)[:-2]
                    reply = words[1] if len(words) > 2 else ""
                    sid = sids.get(reply) or sids.get(reply.rpartition(".")[0] + ".*", 0)
                    said = self._answer(Ask(self.connections, words[0], reply, payload, sid))
                    if said is None:
                        return
                    peer.sendall(said)


def stream_info(ask: Ask, last: int, first: int = 1, **config: Any) -> bytes:
    return ask.json(
        {
            "config": {"name": "S", "allow_direct": True, **config},
            "state": {"first_seq": first, "last_seq": last, "messages": last, "bytes": 100 * last},
        }
    )
