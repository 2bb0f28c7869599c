"""The runs of the rows with three replicas: publishing, consuming, key-value buckets, catching up.

- A publisher is connected to the server that leads the stream, and a puller to the one that leads
  the consumer: no row depends on where a server places its leaders.
- The clients of a bucket are spread over all servers.
- Nothing is measured before all replicas of the stream are current.
"""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from natsd.bench.arms import BenchServer
from natsd.bench.frames import payload, pub
from natsd.bench.jetstream.api import Api
from natsd.bench.jetstream.callers import INBOX, CallingClients
from natsd.bench.jetstream.consumers import Puller
from natsd.bench.jetstream.publisher import WindowPublisher, fill
from natsd.bench.jetstream.scenarios import (
    FIRST_CALLS,
    FIRST_MESSAGES,
    KEYS_IN_USE,
    NAME,
    PAYLOAD_BYTES,
    PULL_BATCH,
    SUBJECTS,
    bucket_clients,
    bucket_config,
    measured,
    stream_config,
)
from natsd.bench.measurement import Measurement
from natsd.bench.replicated.servers import ALWAYS, DEFAULT, LOOK_SECONDS, Member, ReplicatedServer
from natsd.bench.wire import LoadError

CAUGHT_UP_SECONDS_MAX: Final = 600.0
_numbers: Final[Iterator[int]] = itertools.count()


class ReplicatedScenario:
    """A run on a cluster of three servers."""

    fresh: ClassVar[bool] = False
    setup: str

    @property
    def first_size(self) -> int | None:
        """The size that calibrating begins with; None: the size is fixed."""
        return None

    def run(self, server: BenchServer, size: int) -> Measurement:
        """Run once."""
        assert isinstance(server, ReplicatedServer)
        return self.measure(server, size)

    def measure(self, server: ReplicatedServer, size: int) -> Measurement:
        """Run once, on a cluster that is ready."""
        raise NotImplementedError


@dataclass(frozen=True)
class ReplicatedPublish(ReplicatedScenario):
    """One publisher with a window of acknowledgements."""

    storage: str
    setup: str = DEFAULT

    @property
    def first_size(self) -> int:
        """The number of messages to begin with; small, since a sync may be slow."""
        return FIRST_MESSAGES

    def measure(self, server: ReplicatedServer, size: int) -> Measurement:
        """Publish `size` messages into a newly created stream."""
        leader, subject = remade(server, self.storage)
        role = WindowPublisher(leader.server.host, leader.server.port, subject, 1, size)
        return measured(server, role, size)


@dataclass(frozen=True)
class ReplicatedWaitingPublish(ReplicatedScenario):
    """One client that waits for each acknowledgement before the next publish."""

    storage: str = "file"
    setup: str = ALWAYS

    @property
    def first_size(self) -> int:
        """The number of publishes to begin with; small, since a sync may be slow."""
        return FIRST_CALLS

    def measure(self, server: ReplicatedServer, size: int) -> Measurement:
        """Measure the round trips of `size` publishes into a newly created stream."""
        leader, subject = remade(server, self.storage)
        frame = pub(subject, payload(PAYLOAD_BYTES), INBOX % 0)
        at = leader.server
        role = CallingClients(at.host, at.port, 1, size, frame, len(frame))
        return measured(server, role, size)


@dataclass
class ConsumingPuller(Puller):
    """A puller whose consumer exists already."""

    def prepare(self) -> None:
        """Subscribe."""
        self.subscribe()


@dataclass(frozen=True)
class ReplicatedPull(ReplicatedScenario):
    """A durable pull consumer that reads a file stream in batches and acknowledges each message."""

    messages: int
    setup: str = DEFAULT

    def measure(self, server: ReplicatedServer, size: int) -> Measurement:
        """Read all messages with a new consumer."""
        filled(server, stream_config(NAME, "data.*", "file"), b"data.%04d", SUBJECTS, self.messages)
        consumer = f"bench{next(_numbers)}"
        role = ConsumingPuller(server.host, server.port, NAME, consumer, self.messages, PULL_BATCH)
        role.make_consumer()
        role.port = server.leader(NAME, consumer).server.port
        return measured(server, role, self.messages)


@dataclass(frozen=True)
class ReplicatedBucket(ReplicatedScenario):
    """Clients on all servers that each put or get one key after another."""

    clients: int
    puts: bool
    setup: str = DEFAULT

    @property
    def first_size(self) -> int:
        """The number of calls to begin with; small, since a sync may be slow."""
        return FIRST_CALLS

    def measure(self, server: ReplicatedServer, size: int) -> Measurement:
        """Put or get `size` keys of a bucket in which all keys exist."""
        filled(server, bucket_config(), b"$KV.bench.%07d", KEYS_IN_USE, KEYS_IN_USE)
        others = tuple(each.server.port for each in server.members[1:])
        return measured(server, bucket_clients(server, self.clients, size, self.puts, others), size)


@dataclass(frozen=True)
class CatchUp(ReplicatedScenario):
    """A server with a replica of a file stream that lost all its files."""

    messages: int
    setup: str = DEFAULT

    def measure(self, server: ReplicatedServer, size: int) -> Measurement:
        """Measure from the start of the wiped server until its replica has all messages."""
        leader = filled(
            server, stream_config(NAME, "data.*", "file"), b"data.%04d", SUBJECTS, self.messages
        )
        busy = {leader.name, leader.jsz()["meta_cluster"]["leader"]}
        wiped = next(each for each in server.members if each.name not in busy)
        began = time.monotonic()
        server.restart_wiped(wiped)
        while (found := wiped.messages(NAME)) < self.messages:
            if time.monotonic() - began > CAUGHT_UP_SECONDS_MAX:
                raise LoadError(f"the replica has {found:,} of {self.messages:,} messages")
            time.sleep(LOOK_SECONDS)
        seconds = time.monotonic() - began
        server.leader(NAME)
        return Measurement({"rate": self.messages / seconds}, seconds)


def remade(server: ReplicatedServer, storage: str) -> tuple[Member, bytes]:
    """Make an empty stream in place of the one of the last run.

    Returns the server that leads it, and its subject. Raises LoadError.
    """
    number = next(_numbers)
    with Api(server.host, server.port) as api:
        for name in api.request("STREAM.NAMES").get("streams") or []:
            api.delete_stream(name)
    subject = f"bench.{number:04d}"
    return server.make_stream(stream_config(f"{NAME}{number}", subject, storage)), subject.encode()


def filled(
    server: ReplicatedServer, config: dict[str, Any], subject: bytes, subjects: int, messages: int
) -> Member:
    """Fill the stream with exactly `messages` messages; does nothing if it holds that many.

    Returns the server that leads it. Raises LoadError if the stream cannot be filled.
    """
    with Api(server.host, server.port) as api:
        if api.messages(config["name"]) == messages:
            return server.leader(config["name"])
        api.delete_stream(config["name"])
        at = server.make_stream(config).server
        fill(at.host, at.port, subject, subjects, messages)
        if (found := api.messages(config["name"])) != messages:
            raise LoadError(f"{found:,} of {messages:,} messages are in the stream")
    return server.leader(config["name"])
