"""The runs of the JetStream rows.

Each run gets a server with its own store. Streams that a run needs are made before the clock runs,
or are left from the run before.
"""

import time
from dataclasses import dataclass
from typing import Any, ClassVar

from natsd.bench.arms import BenchServer
from natsd.bench.frames import payload, pub
from natsd.bench.jetstream.api import Api
from natsd.bench.jetstream.arms import JetStreamServer, SyncSetting
from natsd.bench.jetstream.callers import INBOX, CallingClients
from natsd.bench.jetstream.consumers import Puller, Replayer
from natsd.bench.jetstream.publisher import WindowPublisher, fill
from natsd.bench.measurement import Measurement, duration_seconds, first_problem, load_share
from natsd.bench.result import Role
from natsd.bench.wire import LoadError
from natsd.bench.workers import Crew

PAYLOAD_BYTES = 128
FIRST_MESSAGES = 20_000
FIRST_CALLS = 500
SUBJECTS = 1_000
KEYS_IN_USE = 10_000
PULL_BATCH = 500
NAME = "BENCH"
BUCKET = "KV_bench"


def stream_config(name: str, subjects: str, storage: str) -> dict[str, Any]:
    """Return the configuration of a stream without limits."""
    return {"name": name, "subjects": [subjects], "storage": storage, "num_replicas": 1}


def bucket_config() -> dict[str, Any]:
    """Return the configuration of a key-value bucket, as clients create it."""
    return {
        **stream_config(BUCKET, "$KV.bench.>", "file"),
        "max_msgs_per_subject": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
        "duplicate_window": 120_000_000_000,
    }


def measured(server: BenchServer, role: Role, count: int) -> Measurement:
    """Run one load process and return its measurement; the rate is of `count` things."""
    with Crew([role]) as crew:
        results = crew.run()
    seconds = duration_seconds(results, results)
    missing = max(0, results[0].sent - results[0].received)
    values = {"rate": count / seconds, **results[0].values}
    problem = first_problem(results)
    return Measurement(
        values, seconds, 0 if problem else missing, problem, load_share(results, seconds)
    )


class JetStreamScenario:
    """A run that first asks whether the server supports what the row needs."""

    fresh: ClassVar[bool] = False
    sync: SyncSetting

    @property
    def first_size(self) -> int | None:
        """The size that calibrating begins with; None: the size is fixed."""
        return None

    def run(self, server: BenchServer, size: int) -> Measurement:
        """Run once; a measurement with a problem if the server does not support the row."""
        assert isinstance(server, JetStreamServer)
        if server.unsupported:
            return Measurement(problem=server.unsupported)
        return self.measure(server, size)

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """Run once, on a server that supports the row."""
        raise NotImplementedError


@dataclass(frozen=True)
class WindowPublish(JetStreamScenario):
    """One publisher with a window of acknowledgements, to `streams` streams in turn."""

    storage: str
    sync: SyncSetting
    streams: int = 1

    @property
    def first_size(self) -> int:
        """The number of messages to begin with; small, since a sync may be slow."""
        return FIRST_MESSAGES

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """Publish `size` messages into newly created streams."""
        with Api(server.host, server.port) as api:
            for number in range(self.streams):
                name, subject = f"{NAME}{number}", f"bench.{number:04d}"
                api.remake_stream(stream_config(name, subject, self.storage))
        publisher = WindowPublisher(server.host, server.port, b"bench.%04d", self.streams, size)
        if self.streams == 1:
            publisher.subject = b"bench.0000"
        return measured(server, publisher, size)


@dataclass(frozen=True)
class WaitingPublish(JetStreamScenario):
    """One client that waits for each acknowledgement before the next publish."""

    storage: str
    sync: SyncSetting

    @property
    def first_size(self) -> int:
        """The number of publishes to begin with; small, since a sync may be slow."""
        return FIRST_CALLS

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """Measure the round trips of `size` publishes into a newly created stream."""
        with Api(server.host, server.port) as api:
            api.remake_stream(stream_config(NAME, "wait.*", self.storage))
        frame = pub(b"wait.0", payload(PAYLOAD_BYTES), INBOX % 0)
        role = CallingClients(server.host, server.port, 1, size, frame, len(frame))
        return measured(server, role, size)


@dataclass(frozen=True)
class Pull(JetStreamScenario):
    """A durable pull consumer that reads a file stream in batches and acknowledges each message."""

    messages: int
    sync: SyncSetting = SyncSetting.DEFAULT

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """Read all messages with a new consumer."""
        filled(server, stream_config(NAME, "data.*", "file"), b"data.%04d", SUBJECTS, self.messages)
        role = Puller(server.host, server.port, NAME, "bench", self.messages, PULL_BATCH)
        return measured(server, role, self.messages)


@dataclass(frozen=True)
class OrderedReplay(JetStreamScenario):
    """An ordered push consumer that reads a whole file stream."""

    messages: int
    sync: SyncSetting = SyncSetting.DEFAULT

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """Measure from the consumer's creation to the last message."""
        filled(server, stream_config(NAME, "data.*", "file"), b"data.%04d", SUBJECTS, self.messages)
        role = Replayer(server.host, server.port, NAME, self.messages, {"deliver_policy": "all"})
        return measured(server, role, self.messages)


@dataclass(frozen=True)
class Bucket(JetStreamScenario):
    """Clients that each put or get one key after another."""

    clients: int
    puts: bool
    sync: SyncSetting

    @property
    def first_size(self) -> int:
        """The number of calls to begin with; small, since a sync may be slow."""
        return FIRST_CALLS

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """Put or get `size` keys of a bucket in which all keys exist."""
        filled(server, bucket_config(), b"$KV.bench.%07d", KEYS_IN_USE, KEYS_IN_USE)
        return measured(server, bucket_clients(server, self.clients, size, self.puts), size)


def bucket_clients(
    server: BenchServer, clients: int, size: int, puts: bool, other_ports: tuple[int, ...] = ()
) -> CallingClients:
    """Return clients that together put or get `size` keys of the benchmark's bucket.

    `other_ports` are those of further servers of a cluster, among which the clients are spread.
    """
    frames = [_bucket_frame(number, puts) for number in range(KEYS_IN_USE)]
    return CallingClients(
        server.host,
        server.port,
        clients,
        size,
        b"".join(frames),
        len(frames[0]),
        -1 if puts else PAYLOAD_BYTES,
        other_ports,
    )


def _bucket_frame(number: int, puts: bool) -> bytes:
    key = b"$KV.bench.%07d" % number
    if puts:
        return pub(key, payload(PAYLOAD_BYTES), INBOX % 0)
    return pub(b"$JS.API.DIRECT.GET.%s.%s" % (BUCKET.encode(), key), b"", INBOX % 0)


@dataclass(frozen=True)
class Keys(JetStreamScenario):
    """A client that reads all keys of a bucket: without values (keys), then with them (watch)."""

    keys: int
    sync: SyncSetting = SyncSetting.DEFAULT

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """Measure both from the request to the last key."""
        filled(server, bucket_config(), b"$KV.bench.%07d", self.keys, self.keys)
        keys, watch = self._replay(server, values=False), self._replay(server, values=True)
        rates = {"keys": keys.values["rate"], "watch": watch.values["rate"]}
        return Measurement(
            rates,
            keys.seconds + watch.seconds,
            keys.missing + watch.missing,
            keys.problem or watch.problem,
            max(keys.load_share, watch.load_share),
        )

    def _replay(self, server: JetStreamServer, *, values: bool) -> Measurement:
        config = {
            "deliver_policy": "last_per_subject",
            "filter_subject": "$KV.bench.>",
            "headers_only": not values,
        }
        role = Replayer(server.host, server.port, BUCKET, self.keys, config)
        return measured(server, role, self.keys)


@dataclass(frozen=True)
class Restart(JetStreamScenario):
    """A server with a large stream that is stopped, then killed, and started again each time."""

    messages: int
    sync: SyncSetting = SyncSetting.DEFAULT

    def measure(self, server: JetStreamServer, size: int) -> Measurement:
        """Measure from the start of the process until it answers how many messages there are."""
        filled(server, stream_config(NAME, "data.*", "file"), b"data.%04d", SUBJECTS, self.messages)
        values = {
            "stopped_ms": 1e3 * self._restart(server, kill=False),
            "killed_ms": 1e3 * self._restart(server, kill=True),
        }
        return Measurement(values, sum(values.values()) / 1e3)

    def _restart(self, server: JetStreamServer, *, kill: bool) -> float:
        seconds = server.restart(kill=kill)
        began = time.monotonic()
        with Api(server.host, server.port) as api:
            found = api.messages(NAME)
        if found != self.messages:
            raise LoadError(f"{found:,} of {self.messages:,} messages came back")
        return seconds + time.monotonic() - began


def filled(
    server: JetStreamServer, config: dict[str, Any], subject: bytes, subjects: int, messages: int
) -> None:
    """Fill the stream with exactly `messages` messages over `subjects` subjects.

    Does nothing if the stream holds that many. Raises LoadError if the stream cannot be filled.
    """
    with Api(server.host, server.port) as api:
        if api.messages(config["name"]) == messages:
            return
        api.remake_stream(config)
        fill(server.host, server.port, subject, subjects, messages)
        if (found := api.messages(config["name"])) != messages:
            raise LoadError(f"{found:,} of {messages:,} messages are in the stream")
