"""Runs across a route: publishers on one server, subscribers on the other.

    load ─▶ server ══ route ══▶ server.peer ─▶ load

Both servers of a pair are started with a configuration that connects them. Interest travels on its
own time, so a run begins once a message of the server reaches a subscription that was made on its
peer after all others.
"""

import contextlib
import itertools
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from natsd.bench import wire
from natsd.bench.arms import HOST, BenchServer, Configurable, free_port
from natsd.bench.config_file import write_config
from natsd.bench.frames import msg, pub, sub
from natsd.bench.measurement import Measurement, first_problem, load_share
from natsd.bench.result import RoleResult
from natsd.bench.workers import Crew

INTEREST_SECONDS_MAX = 20.0
PROBE_SECONDS = 0.001
RECEIVE_BYTES = 1 << 16
SETUP = "cluster"
LAST = b"storm.last"
_probes = itertools.count()


@contextlib.contextmanager
def running_pair(arm: Configurable, directory: Path) -> Iterator[BenchServer]:
    """Run two servers with a route between them; the second one is the `peer` of the first.

    Raises ArmError if one does not start, or LoadError if no route is there in time.
    """
    ports = [free_port(), free_port()]
    servers: list[BenchServer] = []
    with ExitStack() as stack:
        for number, port in enumerate(ports):
            cluster = {
                "name": "bench",
                "listen": f"{HOST}:{port}",
                "no_advertise": True,  # or clients get an INFO when the route comes
                "routes": [f"nats://{HOST}:{other}" for other in ports if other != port],
            }
            config = directory / f"server{number}.json"
            write_config(config, {"server_name": f"bench{number}", "cluster": cluster})
            servers.append(stack.enter_context(arm.configured(config).running()))
        servers[0].peer = servers[1]
        await_interest(servers[0])
        yield servers[0]


def await_interest(server: BenchServer) -> None:
    """Wait until the server knows all subscriptions that its peer, if there is one, has now.

    Raises LoadError after INTEREST_SECONDS_MAX.
    """
    if server.peer is None:
        return
    subject = b"probe.%d" % next(_probes)
    with (
        contextlib.closing(wire.connect(server.peer.host, server.peer.port, sub(subject))) as there,
        contextlib.closing(wire.connect(server.host, server.port, b"")) as here,
    ):
        publish_until_received(here, there, subject)


def publish_until_received(here: socket.socket, there: socket.socket, subject: bytes) -> None:
    """Publish on a subject until a message arrives there.

    Raises LoadError after INTEREST_SECONDS_MAX.
    """
    there.settimeout(PROBE_SECONDS)
    deadline = time.monotonic() + INTEREST_SECONDS_MAX
    wanted = msg(subject, b"")
    received = b""
    while time.monotonic() < deadline:
        here.sendall(pub(subject, b""))
        with contextlib.suppress(TimeoutError):
            received += there.recv(RECEIVE_BYTES)
        if wanted in received:
            return
    raise wire.LoadError(f"no message crossed the route in {INTEREST_SECONDS_MAX:.0f} s")


@dataclass
class ManySubscriptions:
    """A client that makes `count` subscriptions on the peer, until the server reaches the last."""

    host: str
    port: int
    peer_port: int
    count: int
    _there: socket.socket = field(init=False, repr=False)
    _here: socket.socket = field(init=False, repr=False)

    def prepare(self) -> None:
        """Connect to both servers."""
        self._there = wire.connect(self.host, self.peer_port, b"")
        self._here = wire.connect(self.host, self.port, b"")

    def run(self) -> RoleResult:
        """Subscribe, and publish to the last subject until a message arrives."""
        numbers = range(1, self.count)
        frames = b"".join([sub(b"storm.%06d" % each, b"%d" % (each + 1)) for each in numbers])
        started_ns = time.perf_counter_ns()
        problem = ""
        try:
            self._there.settimeout(INTEREST_SECONDS_MAX)
            self._there.sendall(frames + sub(LAST))
            publish_until_received(self._here, self._there, LAST)
        except (OSError, wire.LoadError) as error:
            problem = f"subscriptions: {error}"
        return RoleResult(started_ns, time.perf_counter_ns(), problem=problem)

    def close(self) -> None:
        """Close the connections."""
        wire.close_with_reset(self._there)
        wire.close_with_reset(self._here)


@dataclass(frozen=True)
class InterestStorm:
    """Many subscriptions made on one server, until the other one delivers to the last of them."""

    first_size: ClassVar[int | None] = None
    fresh: ClassVar[bool] = True
    setup: ClassVar[str] = SETUP

    subscriptions: int

    def run(self, server: BenchServer, size: int) -> Measurement:
        """Measure the time from the first SUB to the first message on the last subject."""
        assert server.peer is not None
        role = ManySubscriptions(server.host, server.port, server.peer.port, self.subscriptions)
        with Crew([role]) as crew:
            results = crew.run()
        seconds = (results[0].ended_ns - results[0].started_ns) / 1e9
        values = {"storm_ms": seconds * 1e3}
        return Measurement(values, seconds, 0, first_problem(results), load_share(results, seconds))
