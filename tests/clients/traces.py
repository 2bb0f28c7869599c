"""Clients that ask for traces of messages, and one that reads them."""

from __future__ import annotations

import json
from typing import Any

from tests.clients.target import Target
from tests.clients.wire import Wire

TO = "t.here"
DESTINATION = "Nats-Trace-Dest"
ONLY = "Nats-Trace-Only"


class Peer(Wire):
    """A client with headers, and with a name if one is given."""

    def __init__(self, server: Target, *, name: str = "", **said: Any) -> None:
        super().__init__(server.address)
        self.cid: int = self.info["client_id"]
        connect = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "name": name,
            **said,
        }
        self.send(b"CONNECT " + json.dumps(connect).encode() + b"\r\n")
        self.sync()

    def subscribe(self, subject: str, sid: int = 1, queue: str = "") -> None:
        self.send(f"SUB {subject} {queue} {sid}\r\n".encode())
        self.sync()

    def publish(
        self, subject: str, headers: dict[str, str] | bytes, data: bytes = b"hello", reply: str = ""
    ) -> list[bytes]:
        """Publish a message and return the frames that arrive before the next PONG."""
        block = headers if isinstance(headers, bytes) else header_block(headers)
        line = f"HPUB {subject} {reply} {len(block)} {len(block) + len(data)}\r\n"
        self.send(line.encode() + block + data + b"\r\n")
        return [frame for frame in self.sync() if not frame.startswith(b"INFO ")]


def header_block(headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


class Tracer(Peer):
    """A client that receives traces."""

    def __init__(self, server: Target) -> None:
        super().__init__(server, name="tracer")
        self.subscribe("t.>")

    def trace(self) -> dict[str, Any]:
        """Return the next trace."""
        trace: dict[str, Any] = json.loads(body_of(self.read_message()))
        return trace

    def events(self) -> list[dict[str, Any]]:
        """Return the events of the next trace, without their times."""
        events: list[dict[str, Any]] = self.trace()["events"]
        for event in events:
            assert event.pop("ts").endswith("Z")
        return events

    def has_nothing(self) -> None:
        assert self.sync() == []


def body_of(frame: bytes) -> bytes:
    line, _, rest = frame.partition(b"\r\n")
    head = int(line.split()[-2]) if frame.startswith(b"HMSG") else 0
    return rest[head:-2]


def came_in(peer: Peer, subject: str, **more: Any) -> dict[str, Any]:
    return {"type": "in", "kind": 0, "cid": peer.cid, "acc": "$G", "subj": subject, **more}


def went_out(peer: Peer, sub: str, **more: Any) -> dict[str, Any]:
    return {"type": "eg", "kind": 0, "cid": peer.cid, "sub": sub, **more}
