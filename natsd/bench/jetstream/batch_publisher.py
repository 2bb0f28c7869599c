"""A load process that publishes in atomic batches, with a few batches under way."""

from dataclasses import dataclass, field

from natsd.bench import wire
from natsd.bench.frames import hpub, payload
from natsd.bench.jetstream.connected import Connected, timed
from natsd.bench.jetstream.load import PubAcks
from natsd.bench.jetstream.publisher import INBOX
from natsd.bench.result import RoleResult

BATCHES_UNDER_WAY = 8


@dataclass
class BatchPublisher(Connected):
    """A publisher of whole batches, `messages` messages in all.

    Only the last message of a batch is acknowledged.
    """

    subject: bytes
    messages: int
    batch: int
    payload_bytes: int = 128
    _batches: list[bytes] = field(init=False, repr=False, default_factory=list)

    def prepare(self) -> None:
        """Connect, subscribe to acknowledgements, and encode a batch for each one under way."""
        self._connect(INBOX + b".*")
        self._batches = [self._frames(number) for number in range(BATCHES_UNDER_WAY)]

    def _frames(self, number: int) -> bytes:
        body, frames = payload(self.payload_bytes), []
        for sequence in range(1, self.batch + 1):
            headers = b"Nats-Batch-Id: b%d\r\nNats-Batch-Sequence: %d\r\n" % (number, sequence)
            reply = b""
            if sequence == self.batch:
                headers += b"Nats-Batch-Commit: 1\r\n"
                reply = b"%s.%05d" % (INBOX, number)
            frames.append(hpub(self.subject, headers, body, reply))
        return b"".join(frames)

    def run(self) -> RoleResult:
        """Publish everything; the run ends with the last acknowledgement."""
        acks = PubAcks(self._sock.fileno(), BATCHES_UNDER_WAY)
        result = timed("publisher", lambda: self._publish(acks, self.messages // self.batch))
        if not result.problem and acks.last_sequence != self.messages:
            result.problem = f"publisher: the stream ends at {acks.last_sequence:,}"
        result.sent, result.received = self.messages, sum(acks.counts()) * self.batch
        return result

    def _publish(self, acks: PubAcks, batches: int) -> None:
        sent = acked = 0
        while acked < batches:
            if sent < batches and sent - acked < BATCHES_UNDER_WAY:
                self._sock.sendall(self._batches[sent % BATCHES_UNDER_WAY])
                sent += 1
                continue
            if not acks.fill():
                raise wire.LoadError(f"acknowledgements stopped after {acked:,} batches")
            acked += acks.take()
