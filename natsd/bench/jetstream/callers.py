"""A load process with several clients that each wait for an answer before the next request."""

import socket
import time
from array import array
from dataclasses import dataclass, field

from natsd.bench import wire
from natsd.bench.frames import sub
from natsd.bench.jetstream.load import Callers
from natsd.bench.result import RoleResult
from natsd.bench.statistics import percentile

INBOX = b"_INBOX.call.%02d"
CLIENTS_MAX = 100
WARM_UP_CALLS = 100


@dataclass
class CallingClients:
    """Clients that together send `calls` requests.

    `requests` are frames of `request_bytes` each, with the reply subject `INBOX % 0`; each client
    replaces it by its own. `data_bytes` is the number of payload bytes that each answer must have;
    -1: each answer must be a PubAck. `other_ports` are those of further servers of a cluster, among
    which the clients are spread.
    """

    host: str
    port: int
    clients: int
    calls: int
    requests: bytes
    request_bytes: int
    data_bytes: int = -1
    other_ports: tuple[int, ...] = ()
    _socks: list[socket.socket] = field(init=False, repr=False, default_factory=list)

    def prepare(self) -> None:
        """Connect the clients, each with its own inbox."""
        assert self.clients <= CLIENTS_MAX
        assert len(self.requests) % self.request_bytes == 0
        ports = (self.port, *self.other_ports)
        for number in range(self.clients):
            port = ports[number % len(ports)]
            self._socks.append(wire.connect(self.host, port, sub(INBOX % number)))

    def run(self) -> RoleResult:
        """Send requests until all calls are answered."""
        requests = [self.requests.replace(INBOX % 0, INBOX % n) for n in range(self.clients)]
        descriptors = [sock.fileno() for sock in self._socks]
        callers = Callers(descriptors, requests, self.request_bytes, self.data_bytes)
        latencies_ns = array("q")
        answered, problem = 0, ""
        started_ns = time.perf_counter_ns()
        try:
            callers.run(WARM_UP_CALLS, None)
            started_ns = time.perf_counter_ns()
            answered = callers.run(self.calls, latencies_ns if self.clients == 1 else None)
        except (OSError, wire.LoadError) as error:
            problem = f"client: {error}"
        result = RoleResult(started_ns, time.perf_counter_ns(), problem=problem)
        result.sent, result.received = self.calls, answered
        if latencies_ns:
            result.values["p50_us"] = percentile(latencies_ns, 50) / 1e3
        return result

    def close(self) -> None:
        """Close the connections."""
        for sock in self._socks:
            wire.close_with_reset(sock)
