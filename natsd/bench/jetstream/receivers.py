"""Load processes that receive a stream without a consumer: batched direct gets, and a snapshot."""

import json
from dataclasses import dataclass, field

from natsd.bench import wire
from natsd.bench.frames import pub
from natsd.bench.jetstream.api import Api
from natsd.bench.jetstream.connected import Connected, timed
from natsd.bench.jetstream.load import Chunks, StoredMessages
from natsd.bench.result import RoleResult

INBOX = b"_INBOX.receive"


@dataclass
class DirectGetReader(Connected):
    """A client that reads all `messages` of a stream with direct gets of `batch` messages each."""

    stream: str
    messages: int
    batch: int

    def prepare(self) -> None:
        """Connect and subscribe."""
        self._connect(INBOX)

    def run(self) -> RoleResult:
        """Read everything; measured from the first request to the last message."""
        stored = StoredMessages(self._sock.fileno())
        result = timed("reader", lambda: self._read(stored))
        result.sent, result.received = self.messages, stored.received
        return result

    def _read(self, stored: StoredMessages) -> None:
        subject = f"$JS.API.DIRECT.GET.{self.stream}".encode()
        while stored.received < self.messages:
            request = {"seq": stored.last_sequence + 1, "batch": self.batch}
            stored.next_batch()
            self._sock.sendall(pub(subject, json.dumps(request).encode(), INBOX))
            while not stored.ended:
                if not stored.fill():
                    raise wire.LoadError(f"messages stopped after {stored.received:,}")
                stored.take()


@dataclass
class SnapshotReceiver(Connected):
    """A client that receives a snapshot of a stream and discards it.

    `is_checked` asks the server to verify the messages first (`jsck`).
    """

    stream: str
    is_checked: bool
    _api: Api = field(init=False, repr=False)

    def prepare(self) -> None:
        """Connect and subscribe."""
        self._api = Api(self.host, self.port)
        self._connect(INBOX)

    def run(self) -> RoleResult:
        """Receive the snapshot; measured from the request to the end of the last chunk."""
        chunks = Chunks(self._sock.fileno())
        result = timed("snapshot", lambda: self._receive(chunks))
        result.values["snapshot_bytes"] = float(chunks.data_bytes)
        return result

    def _receive(self, chunks: Chunks) -> None:
        request = {
            "deliver_subject": INBOX.decode(),
            "no_consumers": True,
            "jsck": self.is_checked,
        }
        self._api.request(f"STREAM.SNAPSHOT.{self.stream}", request)
        while not chunks.ended:
            if not chunks.fill():
                raise wire.LoadError(f"chunks stopped after {chunks.data_bytes:,} bytes")
            chunks.take()
            if answers := chunks.answers():
                self._sock.sendall(answers)

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self._api.close()
