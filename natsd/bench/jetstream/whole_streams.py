"""The runs of rows that concern a whole stream, and of messages that are stored as a batch.

A whole stream is mirrored, read without a consumer, or expires. nats-server before 2.12 has no
atomic batches; before 2.11 it has neither message TTLs nor direct gets of batches: the rows that
need them are void there.
"""

import time
from dataclasses import dataclass

from natsd.bench.frames import payload
from natsd.bench.jetstream.api import Api
from natsd.bench.jetstream.arms import JetStreamServer, SyncSetting
from natsd.bench.jetstream.batch_publisher import BatchPublisher
from natsd.bench.jetstream.expiry import ExpiryWitness
from natsd.bench.jetstream.publisher import fill
from natsd.bench.jetstream.receivers import DirectGetReader, SnapshotReceiver
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
from natsd.bench.measurement import Measurement
from natsd.bench.wire import LoadError

MIRROR = "BENCH_MIRROR"
LOOK_SECONDS = 0.01
CAUGHT_UP_SECONDS_MAX = 60.0
LIFETIME_SECONDS = 10
"""TTL of expiring messages: longer than it takes to publish all of them."""


@dataclass(frozen=True)
class MirrorCatchUp(JetStreamScenario):
    """A mirror that is created after its origin, a file stream, was filled."""

    messages: int
    sync: SyncSetting = SyncSetting.DEFAULT

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """Measure from the mirror's creation until it has all messages."""
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
class AtomicBatchPublish(JetStreamScenario):
    """One publisher whose messages are stored in atomic batches."""

    batch: int
    sync: SyncSetting = SyncSetting.DEFAULT

    @property
    def first_size(self) -> int:
        """The number of messages to begin with."""
        return FIRST_MESSAGES

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """Publish about `size` messages into a newly created stream."""
        messages = max(size // self.batch, 1) * self.batch
        with Api(server.host, server.port) as api:
            api.remake_stream(stream_config(NAME, "data.*", "file") | {"allow_atomic": True})
        role = BatchPublisher(server.host, server.port, b"data.0", messages, self.batch)
        return measured(server, role, messages)


@dataclass(frozen=True)
class DirectBatches(JetStreamScenario):
    """A client that reads a file stream with direct gets of batches."""

    messages: int
    batch: int
    sync: SyncSetting = SyncSetting.DEFAULT

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """Read all messages."""
        config = stream_config("DIRECT", "direct.*", "file") | {"allow_direct": True}
        filled(server, config, b"direct.%04d", SUBJECTS, self.messages)
        role = DirectGetReader(server.host, server.port, "DIRECT", self.messages, self.batch)
        return measured(server, role, self.messages)


@dataclass(frozen=True)
class Snapshot(JetStreamScenario):
    """A client that takes a snapshot of a file stream.

    With `is_checked` the server reads and verifies the whole stream before the first chunk. natsd
    verifies what it reads in any case, nats-server only with `is_checked`.
    """

    messages: int
    is_checked: bool = False
    sync: SyncSetting = SyncSetting.DEFAULT

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """Measure from the request to the end.

        The rate is that of the stream's messages, however small the snapshot is.
        """
        filled(server, stream_config(NAME, "data.*", "file"), b"data.%04d", SUBJECTS, self.messages)
        role = SnapshotReceiver(server.host, server.port, NAME, self.is_checked)
        return measured(server, role, self.messages)


@dataclass(frozen=True)
class Expiring(JetStreamScenario):
    """A client that publishes while messages expire that were published at about the same time."""

    messages: int
    sync: SyncSetting = SyncSetting.DEFAULT

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """Measure from the first expiry to the last."""
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
