"""A load process that publishes one message after another while very many others expire."""

import time
from array import array
from collections.abc import MutableSequence
from dataclasses import dataclass, field

from natsd.bench import wire
from natsd.bench.frames import pub, sub
from natsd.bench.jetstream.api import Api
from natsd.bench.jetstream.callers import INBOX
from natsd.bench.jetstream.load import Callers
from natsd.bench.result import RoleResult
from natsd.bench.statistics import percentile

CALLS_PER_LOOK = 100
LOOK_SECONDS = 0.005
EXPIRED_SECONDS_MAX = 60.0


@dataclass
class ExpiryWitness:
    """A publisher that measures its latency while a stream's `messages` messages expire.

    The run begins when the first of them has expired and ends with the last.
    """

    host: str
    port: int
    stream: str
    subject: bytes
    messages: int
    payload: bytes
    _api: Api = field(init=False, repr=False)

    def prepare(self) -> None:
        """Connect to the API."""
        self._api = Api(self.host, self.port)

    def run(self) -> RoleResult:
        """Publish, and ask now and then how many messages are left."""
        latencies_ns, problem = array("q"), ""
        started_ns = ended_ns = time.perf_counter_ns()
        sock = wire.connect(self.host, self.port, sub(INBOX % 0))
        try:
            frame = pub(self.subject, self.payload, INBOX % 0)
            callers = Callers([sock.fileno()], [frame], len(frame), -1)
            started_ns, ended_ns = self._witness(callers, latencies_ns)
        except (OSError, wire.LoadError) as error:
            problem = f"witness: {error}"
        finally:
            wire.close_with_reset(sock)
        result = RoleResult(started_ns, ended_ns, problem=problem)
        if latencies_ns:
            result.values["p99_us"] = percentile(latencies_ns, 99) / 1e3
        return result

    def _witness(self, callers: Callers, latencies_ns: MutableSequence[int]) -> tuple[int, int]:
        deadline = time.monotonic() + EXPIRED_SECONDS_MAX
        while self._api.messages(self.stream) == self.messages:
            self._go_on_until(deadline)
            time.sleep(LOOK_SECONDS)
        started_ns, published = time.perf_counter_ns(), 0
        while self._api.messages(self.stream) > published:
            self._go_on_until(deadline)
            published += callers.run(CALLS_PER_LOOK, latencies_ns)
        return started_ns, time.perf_counter_ns()

    def _go_on_until(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            left = self._api.messages(self.stream)
            raise wire.LoadError(f"{left:,} messages are left, they should have expired")

    def close(self) -> None:
        """Close the connection."""
        self._api.close()
