"""Many streams and consumers: how long their creation takes, and a restart with them."""

import json
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar, Final

from natsd.bench import wire
from natsd.bench.arms import BenchServer, resident_bytes
from natsd.bench.frames import PING, PONG, pub, sub
from natsd.bench.jetstream.api import ANSWER_SECONDS_MAX, INBOX, Api
from natsd.bench.jetstream.arms import JetStreamServer, SyncSetting
from natsd.bench.jetstream.scenarios import JetStreamScenario, stream_config
from natsd.bench.measurement import Measurement
from natsd.bench.statistics import median
from natsd.bench.wire import LoadError

WINDOW: Final = 256
SINGLE: Final = 200

Request = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Assets(JetStreamScenario):
    """A server whose file streams and durable consumers are created, then found by restarts."""

    fresh: ClassVar[bool] = True

    streams: int
    consumers: int
    sync: SyncSetting = SyncSetting.DEFAULT

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """Measure creations with requests under way and one after another, then the restarts."""
        assert server.pid is not None
        began = time.monotonic()
        request_all(server, [stream_request(number) for number in range(self.streams)])
        before = resident_bytes(server.pid)
        request_all(server, list(self._consumers(0, self.consumers)))
        made_ms = 1e3 * (time.monotonic() - began)
        grown = resident_bytes(server.pid) - before
        values = {
            "made_ms": made_ms,
            "consumer_bytes": max(grown / self.consumers, 1.0),
            "single_us": 1e6 * self._one_after_another(server),
            "stopped_ms": 1e3 * self._restart(server, kill=False),
            "killed_ms": 1e3 * self._restart(server, kill=True),
        }
        return Measurement(values, time.monotonic() - began)

    def _consumers(self, first: int, count: int) -> Iterator[Request]:
        for number in range(first, first + count):
            yield consumer_request(number % self.streams, number)

    def _one_after_another(self, server: JetStreamServer) -> float:
        """Return the median seconds of a creation that waits for the one before."""
        seconds = []
        with Api(server.host, server.port) as api:
            for subject, body in self._consumers(self.consumers, SINGLE):
                began = time.monotonic()
                api.request(subject, body)
                seconds.append(time.monotonic() - began)
        return median(sorted(seconds))

    def _restart(self, server: JetStreamServer, *, kill: bool) -> float:
        """Return the seconds from the start of the process until it tells what it has."""
        seconds = server.restart(kill=kill)
        began = time.monotonic()
        with Api(server.host, server.port) as api:
            found = api.request("INFO")
        if (found["streams"], found["consumers"]) != (self.streams, self.consumers + SINGLE):
            raise LoadError(f"{found['streams']} streams, {found['consumers']} consumers came back")
        return seconds + time.monotonic() - began


def stream_request(number: int) -> Request:
    """Return the request that creates a stream."""
    name = f"S{number:05d}"
    return f"STREAM.CREATE.{name}", stream_config(name, f"bench.{name}", "file")


def consumer_request(stream: int, number: int) -> Request:
    """Return the request that creates a durable consumer."""
    name, of = f"C{number:06d}", f"S{stream:05d}"
    config = {"durable_name": name, "ack_policy": "explicit"}
    body = {"stream_name": of, "config": config}
    return f"CONSUMER.DURABLE.CREATE.{of}.{name}", body


def request_all(server: BenchServer, requests: Sequence[Request]) -> None:
    """Send the requests, up to WINDOW of them unanswered; raises LoadError for an error answer."""
    with wire.connect(server.host, server.port, sub(INBOX)) as connection:
        connection.settimeout(ANSWER_SECONDS_MAX)
        received = connection.makefile("rb")
        sent = 0
        for answered in range(len(requests)):
            while sent < len(requests) and sent - answered < WINDOW:
                subject, body = requests[sent]
                payload = json.dumps(body).encode()
                connection.sendall(pub(f"$JS.API.{subject}".encode(), payload, INBOX))
                sent += 1
            answer = _next_answer(connection, received)
            if "error" in answer:
                raise LoadError(f"a creation failed: {answer['error'].get('description')}")


def _next_answer(connection: socket.socket, received: BinaryIO) -> dict[str, Any]:
    while not (line := received.readline()).startswith(b"MSG "):
        if not line or line.startswith((b"HMSG ", b"-ERR")):
            raise LoadError(f"JetStream does not answer: {line.decode(errors='replace').strip()}")
        if line == PING:
            connection.sendall(PONG)
    body = received.read(int(line.split()[-1]) + 2)
    answer: dict[str, Any] = json.loads(body)
    return answer
