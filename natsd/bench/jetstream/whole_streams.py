"""Runs of rows that concern a stream as a whole: copied, read without a consumer, expiring; and
publishes that are stored together.

nats-server before 2.12 knows no atomic batches, before 2.11 neither message TTLs nor batches of
direct gets: there the rows that need them are void.
"""

import time
from dataclasses import dataclass

from natsd.bench.frames import payload
from natsd.bench.jetstream.api import Api
from natsd.bench.jetstream.arms import JetStreamServer, Sync
from natsd.bench.jetstream.batch_publisher import BatchPublisher
from natsd.bench.jetstream.expiry import ExpiryWitness
from natsd.bench.jetstream.publisher import fill
from natsd.bench.jetstream.receivers import BatchReader, SnapshotReader
from natsd.bench.jetstream.scenarios import (
    FIRST_MESSAGES,
    NAME,
    PAYLOAD_BYTES,
    SUBJECTS,
    JetStreamScenario,
    filled,
    measured,
    stream_config,
)
from natsd.bench.scenarios import Measurement
from natsd.bench.wire import LoadError

MIRROR = "BENCH_MIRROR"
LOOK_SECONDS = 0.01
CAUGHT_UP_SECONDS_MAX = 60.0
LIFETIME_SECONDS = 10
"""Longer than it takes to publish all that is to expire."""


@dataclass(frozen=True)
class MirrorCatchUp(JetStreamScenario):
    """A mirror of a file stream that was full before it came."""

    messages: int
    sync: Sync = Sync.DEFAULT

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """From the mirror's creation until it has all messages."""
        filled(server, stream_config(NAME, "data.*", "file"), b"data.%04d", SUBJECTS, self.messages)
        config = {"name": MIRROR, "storage": "file", "num_replicas": 1, "mirror": {"name": NAME}}
        with Api(server.host, server.port) as api:
            api.delete_stream(MIRROR)
            began = time.monotonic()
            api.request(f"STREAM.CREATE.{MIRROR}", config)
            while (found := api.messages(MIRROR)) < self.messages:
                if time.monotonic() - began > CAUGHT_UP_SECONDS_MAX:
                    raise LoadError(f"the mirror has {found:,} of {self.messages:,} messages")
                time.sleep(LOOK_SECONDS)
            seconds = time.monotonic() - began
            api.delete_stream(MIRROR)
        return Measurement({"rate": self.messages / seconds}, seconds)


@dataclass(frozen=True)
class AtomicBatches(JetStreamScenario):
    """One publisher whose messages are stored in batches, each as a whole."""

    batch: int
    sync: Sync = Sync.DEFAULT

    @property
    def first_size(self) -> int:
        """Few."""
        return FIRST_MESSAGES

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """Into a stream that was emptied."""
        messages = max(size // self.batch, 1) * self.batch
        with Api(server.host, server.port) as api:
            api.remake_stream(stream_config(NAME, "data.*", "file") | {"allow_atomic": True})
        role = BatchPublisher(server.host, server.port, b"data.0", messages, self.batch)
        return measured(server, role, messages)


@dataclass(frozen=True)
class DirectBatches(JetStreamScenario):
    """A client reads a file stream with direct gets of batches."""

    messages: int
    batch: int
    sync: Sync = Sync.DEFAULT

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """All messages."""
        config = stream_config("DIRECT", "direct.*", "file") | {"allow_direct": True}
        filled(server, config, b"direct.%04d", SUBJECTS, self.messages)
        role = BatchReader(server.host, server.port, "DIRECT", self.messages, self.batch)
        return measured(server, role, self.messages)


@dataclass(frozen=True)
class Snapshot(JetStreamScenario):
    """A client takes a snapshot of a file stream; `is_checked`: all of it is read and verified
    before the first chunk. natsd verifies what it reads in any case, nats-server only then."""

    messages: int
    is_checked: bool = False
    sync: Sync = Sync.DEFAULT

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """From the request to the end; the rate is of messages, however small the archive is."""
        filled(server, stream_config(NAME, "data.*", "file"), b"data.%04d", SUBJECTS, self.messages)
        role = SnapshotReader(server.host, server.port, NAME, self.is_checked)
        return measured(server, role, self.messages)


@dataclass(frozen=True)
class Expiring(JetStreamScenario):
    """A client publishes while messages expire that were all published at about the same time."""

    messages: int
    sync: Sync = Sync.DEFAULT

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """From the first expiry to the last."""
        config = stream_config("EXPIRING", "expiring.*", "file") | {"allow_msg_ttl": True}
        with Api(server.host, server.port) as api:
            api.remake_stream(config)
        lifetime = b"Nats-TTL: %ds\r\n" % LIFETIME_SECONDS
        fill(server.host, server.port, b"expiring.%04d", SUBJECTS, self.messages, lifetime)
        role = ExpiryWitness(
            server.host,
            server.port,
            "EXPIRING",
            b"expiring.new",
            self.messages,
            payload(PAYLOAD_BYTES),
        )
        return measured(server, role, self.messages)
