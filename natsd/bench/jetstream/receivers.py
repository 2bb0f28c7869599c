"""Load processes that receive a stream without a consumer: direct gets of batches, a snapshot."""

import json
import socket
import time
from dataclasses import dataclass, field

from natsd.bench import wire
from natsd.bench.frames import pub, sub
from natsd.bench.jetstream.api import Api
from natsd.bench.jetstream.consumers import STALL_SECONDS_MAX
from natsd.bench.jetstream.load import Chunks, StoredMessages
from natsd.bench.result import RoleResult

INBOX = b"_INBOX.receive"


@dataclass
class BatchReader:
    """Reads all `messages` of a stream, a direct get of a batch after another."""

    host: str
    port: int
    stream: str
    messages: int
    batch: int
    _sock: socket.socket = field(init=False, repr=False)

    def prepare(self) -> None:
        """Subscribe."""
        self._sock = wire.connect(self.host, self.port, sub(INBOX))
        wire.set_receive_timeout(self._sock, STALL_SECONDS_MAX)

    def run(self) -> RoleResult:
        """From the first request to the last message."""
        started_ns = time.perf_counter_ns()
        stored, problem = StoredMessages(self._sock.fileno()), ""
        try:
            self._read(stored)
        except (OSError, wire.LoadError) as error:
            problem = f"reader: {error}"
        return RoleResult(
            started_ns,
            time.perf_counter_ns(),
            sent=self.messages,
            received=stored.received,
            problem=problem,
        )

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

    def close(self) -> None:
        """Give up the connection."""
        wire.close_with_reset(self._sock)


@dataclass
class SnapshotReader:
    """Receives a snapshot of a stream, and throws it away."""

    host: str
    port: int
    stream: str
    _sock: socket.socket = field(init=False, repr=False)
    _api: Api = field(init=False, repr=False)

    def prepare(self) -> None:
        """Subscribe."""
        self._api = Api(self.host, self.port)
        self._sock = wire.connect(self.host, self.port, sub(INBOX))
        wire.set_receive_timeout(self._sock, STALL_SECONDS_MAX)

    def run(self) -> RoleResult:
        """From the request to the end of the last chunk."""
        started_ns = time.perf_counter_ns()
        chunks, problem = Chunks(self._sock.fileno()), ""
        try:
            request = {"deliver_subject": INBOX.decode(), "no_consumers": True}
            self._api.request(f"STREAM.SNAPSHOT.{self.stream}", request)
            while not chunks.ended:
                if not chunks.fill():
                    raise wire.LoadError(f"chunks stopped after {chunks.data_bytes:,} bytes")
                chunks.take()
                if answers := chunks.answers():
                    self._sock.sendall(answers)
        except (OSError, wire.LoadError) as error:
            problem = f"snapshot: {error}"
        result = RoleResult(started_ns, time.perf_counter_ns(), problem=problem)
        result.values["archive_bytes"] = float(chunks.data_bytes)
        return result

    def close(self) -> None:
        """Give up the connections."""
        wire.close_with_reset(self._sock)
        self._api.close()
