"""Many streams with three replicas: how long their creation takes, and what they cost at rest."""

import time
from dataclasses import dataclass
from typing import ClassVar, Final

from natsd.bench.jetstream.api import Api
from natsd.bench.jetstream.assets import request_all, stream_request
from natsd.bench.measurement import Measurement
from natsd.bench.replicated.scenarios import ReplicatedScenario
from natsd.bench.replicated.servers import DEFAULT, SERVERS, ReplicatedServer
from natsd.bench.wire import LoadError

SETTLE_SECONDS: Final = 10.0
"""Time after which all is stored, and groups that rest do so."""


@dataclass(frozen=True)
class ReplicatedStreams(ReplicatedScenario):
    """New file streams, and the servers' CPU time in the seconds after their creation."""

    fresh: ClassVar[bool] = True

    streams: int
    idle_seconds: float = 0.0
    """Seconds in which the servers are left alone; 0: only the creation is measured."""
    setup: str = DEFAULT

    def measure(self, server: ReplicatedServer, size: int) -> Measurement:
        """Measure the creation, with requests under way, and the CPU time afterwards."""
        began = time.monotonic()
        requests = []
        for number in range(self.streams):
            subject, config = stream_request(number)
            requests.append((subject, {**config, "num_replicas": SERVERS}))
        request_all(server, requests)
        values = {"made_ms": 1e3 * (time.monotonic() - began)}
        with Api(server.host, server.port) as api:
            if (found := api.request("INFO")["streams"]) != self.streams:
                raise LoadError(f"{found:,} of {self.streams:,} streams are there")
        if self.idle_seconds:
            values["cpu_ms"] = 1e3 * self._idle_share(server)
        return Measurement(values, time.monotonic() - began)

    def _idle_share(self, server: ReplicatedServer) -> float:
        """Return the CPU seconds of all servers per second."""
        time.sleep(SETTLE_SECONDS)
        began, before = time.monotonic(), server.cpu_seconds()
        time.sleep(self.idle_seconds)
        used = server.cpu_seconds() - before
        return max(used, 1e-3) / (time.monotonic() - began)
