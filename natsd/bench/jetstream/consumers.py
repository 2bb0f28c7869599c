"""Load processes that receive from a consumer: acknowledged batches, and replays.

Messages must arrive in the consumer's order, each once, without a gap.
"""

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any

from natsd.bench import wire
from natsd.bench.frames import PING, pub
from natsd.bench.jetstream.api import Api
from natsd.bench.jetstream.connected import STALL_SECONDS_MAX, Connected, timed
from natsd.bench.jetstream.load import Deliveries
from natsd.bench.result import RoleResult

INBOX = b"_INBOX.deliver"
SETTLE_SECONDS_MAX = 10.0
SETTLE_POLL_SECONDS = 0.01
ORDERED: dict[str, Any] = {
    "deliver_subject": INBOX.decode(),
    "ack_policy": "none",
    "max_deliver": 1,
    "flow_control": True,
    "idle_heartbeat": 5_000_000_000,
    "mem_storage": True,
    "inactive_threshold": 300_000_000_000,
}
"""Configuration of an ordered consumer, as clients create it."""


@dataclass
class Puller(Connected):
    """A client that fetches `messages` in batches and acknowledges each message."""

    stream: str
    consumer: str
    messages: int
    batch: int = 500

    def prepare(self) -> None:
        """Create the consumer and subscribe."""
        self.make_consumer()
        self.subscribe()

    def make_consumer(self) -> None:
        """Create the consumer. Raises LoadError."""
        config = {
            "durable_name": self.consumer,
            "ack_policy": "explicit",
            "max_ack_pending": 2 * self.batch,
        }
        with Api(self.host, self.port) as api:
            api.request(
                f"CONSUMER.DURABLE.CREATE.{self.stream}.{self.consumer}",
                {"stream_name": self.stream, "config": config},
            )

    def subscribe(self) -> None:
        """Connect, and subscribe to what is delivered."""
        self._connect(INBOX)

    def run(self) -> RoleResult:
        """Fetch everything; the run ends when the server has read the last acknowledgement."""
        deliveries = Deliveries(self._sock.fileno(), acknowledges=True)
        result = timed("puller", lambda: self._fetch_all(deliveries))
        result.problem = result.problem or self._unacknowledged()
        result.sent, result.received = self.messages, deliveries.received
        return result

    def _fetch_all(self, deliveries: Deliveries) -> None:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self.consumer}".encode()
        for first in range(0, self.messages, self.batch):
            wanted = min(self.batch, self.messages - first)
            self._sock.sendall(pub(subject, b'{"batch":%d}' % wanted, INBOX))
            while deliveries.received < first + wanted:
                if not deliveries.fill():
                    raise wire.LoadError(f"deliveries stopped after {deliveries.received:,}")
                deliveries.take()
                if deliveries.status:
                    raise wire.LoadError(f"unexpected status {deliveries.status!r}")
                self._sock.sendall(deliveries.answers())
        self._sock.sendall(PING)
        self._sock.settimeout(STALL_SECONDS_MAX)
        wire.read_to_pong(self._sock)

    def _unacknowledged(self) -> str:
        """Wait until the consumer's state counts all acknowledgements; return a problem or ""."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        with Api(self.host, self.port) as api:
            while True:
                info = api.request(f"CONSUMER.INFO.{self.stream}.{self.consumer}")
                floor = info["ack_floor"]["consumer_seq"]
                if floor == self.messages and not info["num_ack_pending"]:
                    return ""
                if time.monotonic() > deadline:
                    return f"puller: {self.messages - floor:,} acknowledgements did not count"
                time.sleep(SETTLE_POLL_SECONDS)

    def close(self) -> None:
        """Close the connection and delete the consumer.

        If deleting fails, the next run reports it, since its consumer exists already.
        """
        super().close()
        with contextlib.suppress(OSError, wire.LoadError), Api(self.host, self.port) as api:
            api.request(f"CONSUMER.DELETE.{self.stream}.{self.consumer}")


@dataclass
class Replayer(Connected):
    """A client that receives `messages` from an ordered push consumer.

    It creates the consumer; `config` adds to the configuration ORDERED.
    """

    stream: str
    messages: int
    config: dict[str, Any]
    _api: Api = field(init=False, repr=False)

    def prepare(self) -> None:
        """Connect and subscribe."""
        self._api = Api(self.host, self.port)
        self._connect(INBOX)

    def run(self) -> RoleResult:
        """Receive everything; measured from the consumer's creation to the last message."""
        deliveries = Deliveries(self._sock.fileno(), acknowledges=False)
        result = timed("replayer", lambda: self._replay(deliveries))
        result.sent, result.received = self.messages, deliveries.received
        return result

    def _replay(self, deliveries: Deliveries) -> None:
        config = {**ORDERED, **self.config}
        self._api.request(
            f"CONSUMER.CREATE.{self.stream}", {"stream_name": self.stream, "config": config}
        )
        while deliveries.received < self.messages:
            if not deliveries.fill():
                raise wire.LoadError(f"deliveries stopped after {deliveries.received:,}")
            deliveries.take()
            if deliveries.status:
                raise wire.LoadError(f"unexpected status {deliveries.status!r}")
            if answers := deliveries.answers():
                self._sock.sendall(answers)
        if deliveries.pending:
            raise wire.LoadError(f"{deliveries.pending:,} more messages are pending")

    def close(self) -> None:
        """Close the connections; the consumer loses its interest and is deleted."""
        super().close()
        self._api.close()
