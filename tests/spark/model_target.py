"""A target in memory that knows no message ids, and crashes where a test says.

It takes the place of a NatsClient: frames of a task are parsed here in plain Python, stored in a
list, and answered through the real FrameParser. After a crash the stored messages and the records
are left.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from natsd.spark.errors import ClientError, ConnectionLost
from natsd.spark.ranges import RangeRequest
from natsd.spark.wire.client import decode_answer
from natsd.spark.wire.connecting import ClientOptions
from natsd.spark.wire.frames import FrameHandler, FrameParser
from tests.spark.writing import HEADERS

SECOND_NS = 1_000_000_000


class Crash(BaseException):
    """The process is gone: nothing is released."""


class Answer:
    def __init__(self, value: dict[str, Any]) -> None:
        self.data = json.dumps(value).encode()


class Message:
    def __init__(self, subject: str, headers: list[tuple[str, str]], data: bytes) -> None:
        self.subject = subject
        self.headers = headers
        self.data = data

    @property
    def id(self) -> str:
        return dict(self.headers)["Nats-Msg-Id"]


class ModelServer:
    """The state that survives all attempts. `removed` sequences were stored and then removed."""

    def __init__(self) -> None:
        self.stored: list[Message] = []
        self.removed: set[int] = set()
        self.keys: dict[str, tuple[dict[str, Any], int, int]] = {}
        self.revision = 0
        self.seconds = 0

    def rows(self) -> list[tuple[str, bytes]]:
        return [(message.subject, message.data) for message in self.stored]

    def read(self, _: ClientOptions, request: RangeRequest) -> Iterator[pa.RecordBatch]:
        wanted = [
            list({name: [value] for name, value in message.headers}.items())
            for sequence, message in enumerate(self.stored, 1)
            if request.first_sequence <= sequence <= request.last_sequence
            and sequence not in self.removed
        ]
        yield pa.RecordBatch.from_arrays([pa.array(wanted, HEADERS)], ["headers"])

    def put(self, key: str, value: dict[str, Any], expected: int) -> dict[str, Any]:
        held = self.keys.get(key)
        if expected != (held[1] if held else 0):
            return {"error": {"code": 400, "err_code": 10071, "description": "wrong sequence"}}
        self.revision += 1
        self.keys[key] = (value, self.revision, self.seconds * SECOND_NS)
        return {"stream": "KV_natsd_spark", "seq": self.revision}


class ModelClient:
    """The consecutive connections of one attempt.

    `fate(n)` is called for each message n of this attempt that arrives: "store", "refuse" (429),
    "cut" (stored, and the connection is lost without an answer), "drop" (not stored, and the
    connection is lost), "crash" (stored; then the process dies).
    """

    max_payload = 1 << 20
    server_address = "model"

    def __init__(self, server: ModelServer, fate: Callable[[int], str] = lambda _: "store") -> None:
        self.server = server
        self.options = ClientOptions()
        self.fate = fate
        self.arrived = 0
        self.is_dead = False
        self.inboxes = 0
        self.parser = FrameParser()

    # The interface of a NatsClient

    def reconnect(self) -> None:
        self._live()
        self.parser = FrameParser()

    def new_inbox(self) -> str:
        self.inboxes += 1
        return f"_INBOX.{self.inboxes}"

    def subscribe(self, subject: str, handler: FrameHandler) -> None:
        self.parser.attach(1, handler)

    def receive(self, deadline: float) -> object:
        self._live()
        return self.parser.next()

    def send(self, data: memoryview) -> None:
        self._live()
        rest = bytes(data)
        while rest:
            line, _, rest = rest.partition(b"\r\n")
            verb, subject, reply, header_bytes, total_bytes = line.split(b" ")
            assert verb == b"HPUB"
            headers, payload = rest[: int(header_bytes)], rest[int(header_bytes) : int(total_bytes)]
            rest = rest[int(total_bytes) + 2 :]
            lines = headers.decode().split("\r\n")[1:-2]
            pairs = [(name, value) for name, _, value in (text.partition(": ") for text in lines)]
            self._arrive(reply, Message(subject.decode(), pairs, payload))

    def request(self, subject: str, payload: bytes, headers: bytes) -> Answer:
        self._live()
        key = subject.removeprefix("$KV.natsd_spark.")
        expected = int(headers.split(b": ")[1].split(b"\r\n")[0])
        return Answer(self.server.put(key, json.loads(payload), expected))

    def api(self, name: str, body: Any = None) -> dict[str, Any]:
        self._live()
        return decode_answer(json.dumps(self._api(name, body or {})).encode(), name)

    def _api(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        now = f"1970-01-01T00:{self.server.seconds // 60:02}:{self.server.seconds % 60:02}Z"
        if name == "STREAM.NAMES":
            return {"streams": ["ORDERS"]}
        if name == "STREAM.INFO.KV_natsd_spark":
            return {"ts": now}
        if name == "STREAM.INFO.ORDERS":
            state = {"first_seq": 1, "last_seq": len(self.server.stored)}
            return {"config": {"subjects": ["orders.>"]}, "state": state, "created": "then"}
        if name == "STREAM.PURGE.KV_natsd_spark":
            key = body["filter"].removeprefix("$KV.natsd_spark.")
            self.server.keys.pop(key, None)
            return {"success": True}
        assert name == "STREAM.MSG.GET.KV_natsd_spark"
        held = self.server.keys.get(body["last_by_subj"].removeprefix("$KV.natsd_spark."))
        if held is None:
            return {"error": {"code": 404, "err_code": 10037, "description": "no message found"}}
        data = base64.b64encode(json.dumps(held[0]).encode()).decode()
        at = held[2] // SECOND_NS
        time = f"1970-01-01T00:{at // 60:02}:{at % 60:02}Z"
        return {"message": {"seq": held[1], "data": data, "time": time}}

    # The fate of a message

    def _live(self) -> None:
        if self.is_dead:
            raise ClientError("the process is gone")

    def _arrive(self, reply: bytes, message: Message) -> None:
        fate = self.fate(self.arrived)
        self.arrived += 1
        if fate in ("store", "cut", "crash"):
            self.server.stored.append(message)
        if fate == "crash":
            self.is_dead = True
            raise Crash
        if fate in ("cut", "drop"):
            raise ConnectionLost("cut")
        answer = b'{"stream":"ORDERS", "seq":%d}' % len(self.server.stored)
        if fate == "refuse":
            answer = b'{"error":{"code":429,"err_code":10167,"description":"too many requests"}}'
        self.parser.feed(b"MSG %b 1 %d\r\n%b\r\n" % (reply, len(answer), answer))
