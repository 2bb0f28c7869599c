"""The load processes of request/reply: a requester, with one request at a time, and a responder.

Each request has its own reply subject below one wildcard subscription, as clients do it. PINGs of
the server may arrive between messages; they are skipped.
"""

import socket
import time
from dataclasses import dataclass, field

from natsd.bench import wire
from natsd.bench.frames import PING, SID, msg, pub, sub
from natsd.bench.result import RoleResult
from natsd.bench.statistics import percentile

SUBJECT = b"bench.service"
INBOX = b"_INBOX.bench"
INBOX_BYTES = len(INBOX) + 9
STOP = b"stop"
SECONDS_MAX = 5.0
RECEIVE_BYTES = 1 << 16
WARM_UP_REQUESTS = 200


def inbox(number: int) -> bytes:
    """Return the reply subject of request `number`; all reply subjects have the same length."""
    return b"%s.%08d" % (INBOX, number)


@dataclass
class Requester:
    """A client that sends `requests` requests one after another and measures each round trip."""

    host: str
    port: int
    requests: int
    body: bytes
    _sock: socket.socket = field(init=False, repr=False)

    def prepare(self) -> None:
        """Connect and subscribe to the replies."""
        self._sock = wire.connect(self.host, self.port, sub(INBOX + b".*"))
        self._sock.settimeout(SECONDS_MAX)

    def run(self) -> RoleResult:
        """Measure until all requests are answered or SECONDS_MAX have passed."""
        started_ns = time.perf_counter_ns()
        samples_ns: list[int] = []
        problem = ""
        try:
            samples_ns = self._ask_all()
        except (OSError, wire.LoadError) as error:
            problem = f"requester: {error}"
        result = RoleResult(started_ns, time.perf_counter_ns(), problem=problem)
        result.sent = result.received = len(samples_ns)
        if samples_ns:
            result.values = {
                "p50_us": percentile(samples_ns, 50) / 1e3,
                "p99_us": percentile(samples_ns, 99) / 1e3,
            }
        return result

    def _ask_all(self) -> list[int]:
        clock, samples_ns = time.perf_counter_ns, []
        deadline_ns = clock() + int(SECONDS_MAX * 1e9)
        for number in range(self.requests + WARM_UP_REQUESTS):
            request = pub(SUBJECT, self.body, inbox(number))
            reply = msg(inbox(number), self.body)
            before_ns = clock()
            self._ask(request, reply)
            after_ns = clock()
            samples_ns.append(after_ns - before_ns)
            if after_ns > deadline_ns:
                break
        self._ask(pub(SUBJECT, STOP, inbox(0)), msg(inbox(0), STOP))
        return samples_ns[WARM_UP_REQUESTS:] or samples_ns

    def _ask(self, request: bytes, reply: bytes) -> None:
        self._sock.sendall(request)
        answer = b""
        while answer != reply:
            piece = self._sock.recv(RECEIVE_BYTES)
            if not piece:
                raise wire.LoadError("the server closed the connection")
            answer = (answer + piece).replace(PING, b"")
            if not reply.startswith(answer):
                raise wire.LoadError(f"unexpected reply {answer[:80]!r}")

    def close(self) -> None:
        """Close the connection."""
        wire.close_with_reset(self._sock)


@dataclass
class Responder:
    """A client that answers each request with the request's payload, until the payload is STOP."""

    host: str
    port: int
    _sock: socket.socket = field(init=False, repr=False)

    def prepare(self) -> None:
        """Connect and subscribe to the requests."""
        self._sock = wire.connect(self.host, self.port, sub(SUBJECT))
        self._sock.settimeout(2 * SECONDS_MAX)

    def run(self) -> RoleResult:
        """Answer requests until the payload of one is STOP."""
        started_ns = time.perf_counter_ns()
        problem = ""
        try:
            self._answer_all()
        except (OSError, wire.LoadError) as error:
            problem = f"responder: {error}"
        return RoleResult(started_ns, time.perf_counter_ns(), problem=problem)

    def _answer_all(self) -> None:
        prefix = b"MSG %s %s " % (SUBJECT, SID)
        received = b""
        while True:
            piece = self._sock.recv(RECEIVE_BYTES)
            if not piece:
                raise wire.LoadError("the server closed the connection")
            received = (received + piece).replace(PING, b"")
            if not received.endswith(b"\r\n") or received.count(b"\r\n") < 2:
                continue
            line, body, _ = received.split(b"\r\n", 2)
            if not line.startswith(prefix):
                raise wire.LoadError(f"unexpected request {line[:80]!r}")
            start = len(prefix)
            self._sock.sendall(pub(line[start : start + INBOX_BYTES], body))
            if body == STOP:
                return
            received = b""

    def close(self) -> None:
        """Close the connection."""
        wire.close_with_reset(self._sock)
