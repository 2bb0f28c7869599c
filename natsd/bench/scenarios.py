"""The runs of the benchmark: which load processes each needs, and how their results are read.

A scenario runs once against a running server and returns a `Measurement`. Where the duration of a
run can be chosen by its size (messages, requests, clients), the size is an argument that the
comparison calibrates.

Which subscriber receives which message in `Streams`:

    ALL     one subject; every subscriber gets every message of every publisher
    GROUP   one subject; the subscribers are one queue group
    PAIRS   publisher i and subscriber i have subject i to themselves
    FLEET   one publisher cycles through many subjects; each subject matches exactly one of many
            wildcard subscriptions, which are spread over the subscribers
"""

import enum
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from natsd.bench import frames
from natsd.bench.access import OPEN, Access
from natsd.bench.arms import BenchServer
from natsd.bench.cluster import await_interest
from natsd.bench.frames import FrameShape
from natsd.bench.measurement import Measurement, duration_seconds, first_problem, load_share
from natsd.bench.progress import Progress, Window
from natsd.bench.publisher import Publisher
from natsd.bench.request_reply import Requester, Responder
from natsd.bench.result import Role, RoleResult
from natsd.bench.storm import Storm
from natsd.bench.subscriber import Subscriber
from natsd.bench.wire import LoadError
from natsd.bench.workers import Crew

SUBJECT = b"bench.data"
QUEUE = b"workers"
WINDOW_BYTES = 32 << 20
"""Half of the 64 MiB of pending bytes at which servers drop a subscriber."""
BLOCK_BYTES = 1 << 18
FIRST_RUN_BYTES = 8 << 20
SETTLE_POLL_SECONDS = 0.25
SETTLE_POLLS_MAX = 20
SETTLED_SHARE = 0.002


class Scenario(Protocol):
    """One kind of run."""

    @property
    def first_size(self) -> int | None:
        """The size that calibrating begins with; None if the size is fixed."""

    @property
    def fresh(self) -> bool:
        """Whether every run needs a newly started server."""

    def run(self, server: BenchServer, size: int) -> Measurement:
        """Run once and return the measurement."""


class Sharing(enum.Enum):
    """Which subscriber receives which message; the head of this file explains the members."""

    ALL = "all"
    GROUP = "group"
    PAIRS = "pairs"
    FLEET = "fleet"


@dataclass(frozen=True)
class PubSub:
    """Publishers and subscribers of one payload size."""

    fresh: ClassVar[bool] = False

    publishers: int
    subscribers: int
    payload_bytes: int
    sharing: Sharing = Sharing.ALL
    subscriptions: int = 1
    subjects: int = 1
    setup: str = ""
    publishing: Access = OPEN
    subscribing: Access = OPEN
    delivered: bytes = SUBJECT
    """Subject under which the subscribers get the messages of SUBJECT."""

    @property
    def first_size(self) -> int:
        """The number of messages in FIRST_RUN_BYTES (8 MiB)."""
        return max(self.publishers * 10, FIRST_RUN_BYTES // (self.payload_bytes + 30))

    def run(self, server: BenchServer, size: int) -> Measurement:
        """Publish `size` messages, rounded up to a multiple of the number of publishers."""
        each = -(-size // self.publishers)
        with Progress.create(self.publishers + self.subscribers) as progress:
            roles = self._roles(server, progress.path, each)
            with Crew(roles) as crew:
                await_interest(server)
                results = crew.run()
        return self._measurement(results, self.publishers * each)

    def _roles(self, server: BenchServer, path: Path, each: int) -> list[Role]:
        other = server.peer or server
        subscribers: list[Role] = [
            Subscriber(
                host=other.host,
                port=other.port,
                progress_path=path,
                slot=self.publishers + i,
                window=self._window(i),
                subscriptions=self._subscriptions(i),
                shape=self._shape(i),
                expected=each * (1 if self.sharing is Sharing.PAIRS else self.publishers),
                access=self.subscribing,
            )
            for i in range(self.subscribers)
        ]
        publishers: list[Role] = []
        for i in range(self.publishers):
            block, frame_bytes = self._block(i)
            publishers.append(
                Publisher(
                    host=server.host,
                    port=server.port,
                    progress_path=path,
                    slot=i,
                    window=self._window(i),
                    block=block,
                    frame_bytes=frame_bytes,
                    messages=each,
                    access=self.publishing,
                )
            )
        return subscribers + publishers

    def _measurement(self, results: list[RoleResult], published: int) -> Measurement:
        copies = self.subscribers if self.sharing is Sharing.ALL else 1
        deliveries = published * copies if self.subscribers else published
        received = sum(result.received for result in results)
        seconds = duration_seconds(results[self.subscribers :], results)
        problem = first_problem(results)
        missing = max(0, deliveries - received) if self.subscribers else 0
        if self.subscribers and received > deliveries:
            problem = problem or f"{received - deliveries} messages too many"
        return Measurement(
            {"rate": deliveries / seconds},
            seconds,
            missing,
            problem,
            load_share(results, seconds),
        )

    def _subject(self, number: int) -> bytes:
        return SUBJECT if self.sharing is not Sharing.PAIRS else b"%s.%03d" % (SUBJECT, number)

    def _delivered(self, number: int) -> bytes:
        return self.delivered if self.delivered != SUBJECT else self._subject(number)

    def _subscriptions(self, number: int) -> bytes:
        if self.sharing is Sharing.FLEET:
            return frames.fleet_subscriptions(range(number, self.subscriptions, self.subscribers))
        queue = QUEUE if self.sharing is Sharing.GROUP else b""
        return frames.sub(self._delivered(number), queue=queue)

    def _shape(self, number: int) -> FrameShape:
        body = frames.payload(self.payload_bytes)
        if self.sharing is Sharing.FLEET:
            return FrameShape.fleet(body)
        return FrameShape.literal(frames.msg(self._delivered(number), body))

    def _window(self, number: int) -> Window:
        every = range(self.publishers, self.publishers + self.subscribers)
        ahead = WINDOW_BYTES // self._shape(number).frame_bytes
        if self.sharing is Sharing.PAIRS:
            return Window((number,), (self.publishers + number,), False, ahead)
        shared = self.sharing in (Sharing.GROUP, Sharing.FLEET)
        return Window(tuple(range(self.publishers)), tuple(every), shared, ahead)

    def _block(self, number: int) -> tuple[bytes, int]:
        """Return whole frames to send repeatedly, and the length of one frame in bytes."""
        body = frames.payload(self.payload_bytes)
        if self.sharing is Sharing.FLEET:
            subjects = [frames.fleet_subject(n) for n in spread_numbers(self)]
            block = b"".join(frames.pub(subject, body) for subject in subjects)
            return block, len(block) // len(subjects)
        frame = frames.pub(self._subject(number), body)
        return frame * max(1, BLOCK_BYTES // len(frame)), len(frame)


@dataclass(frozen=True)
class RequestReply:
    """One client sends requests, one at a time, and another answers them."""

    first_size: ClassVar[int | None] = None
    fresh: ClassVar[bool] = False

    requests: int
    payload_bytes: int = 16
    setup: str = ""

    def run(self, server: BenchServer, size: int) -> Measurement:
        """Measure the percentiles of the round trip."""
        body = frames.payload(self.payload_bytes)
        roles: list[Role] = [
            Responder((server.peer or server).host, (server.peer or server).port),
            Requester(server.host, server.port, self.requests, body),
        ]
        with Crew(roles) as crew:
            await_interest(server)
            results = crew.run()
        seconds = duration_seconds(results[1:], results[1:])
        values = results[1].values
        problem = first_problem(results[::-1])  # the requester's is the more precise one
        return Measurement(values, seconds, 0, problem, load_share(results, seconds))


@dataclass(frozen=True)
class ServerStart:
    """The start of a server process, until it accepts a connection."""

    first_size: ClassVar[int | None] = None
    fresh: ClassVar[bool] = True

    def run(self, server: BenchServer, size: int) -> Measurement:
        """Return the time from the start of the process to its first INFO."""
        if server.start_seconds is None:
            return Measurement(problem="the server ran before")
        return Measurement({"start_ms": server.start_seconds * 1e3}, server.start_seconds)


@dataclass(frozen=True)
class ConnectedClients:
    """Many clients that connect, subscribe and stay connected."""

    first_size: ClassVar[int | None] = None
    fresh: ClassVar[bool] = True

    clients: int
    setup: str = ""
    access: Access = OPEN

    def run(self, server: BenchServer, size: int) -> Measurement:
        """Measure the rate of connecting, and the resident memory per idle connection."""
        with Crew([Storm(server.host, server.port, self.clients, self.access)]) as crew:
            before_bytes = settled_bytes(server)
            results = crew.run()
            after_bytes = settled_bytes(server)
        seconds = duration_seconds(results, results)
        values = {"rate": self.clients / seconds}
        if before_bytes is not None and after_bytes is not None:
            values["idle_bytes"] = (after_bytes - before_bytes) / self.clients
        missing = self.clients - results[0].received
        return Measurement(
            values,
            seconds,
            missing,
            first_problem(results),
            load_share(results, seconds),
        )


def spread_numbers(streams: PubSub) -> list[int]:
    """Return the numbers of the devices that publish.

    They are spread evenly over all devices, in an order without locality.
    """
    step = streams.subscriptions // streams.subjects
    stride = 7919  # prime: i * stride % subjects visits all, unless it divides subjects
    assert streams.subjects % stride
    order = [i * stride % streams.subjects for i in range(streams.subjects)]
    return [n * step + n % step for n in order]


def settled_bytes(server: BenchServer) -> int | None:
    """Return the server's resident memory in bytes once it has stopped changing.

    Blocks for up to SETTLE_POLLS_MAX polls, then returns the last value. None: the memory of the
    server cannot be measured.
    """
    current = server.resident_bytes()
    for _ in range(SETTLE_POLLS_MAX):
        if current is None:
            return None
        time.sleep(SETTLE_POLL_SECONDS)
        previous, current = current, server.resident_bytes()
        if current is not None and abs(current - previous) <= SETTLED_SHARE * previous:
            return current
    return current


def run_once(scenario: Scenario, server: BenchServer, size: int) -> Measurement:
    """Run the scenario; if a load process fails, return a measurement with a problem."""
    if server.unsupported:
        return Measurement(problem=server.unsupported)
    try:
        return scenario.run(server, size)
    except LoadError as error:
        return Measurement(problem=str(error))
