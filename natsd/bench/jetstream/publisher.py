"""A load process that publishes to streams, with a window of acknowledgements under way.

Each publish under way has its own reply subject, `_INBOX.bench.<token>`; tokens are reused in turn,
and there are more of them than fit in the window. An acknowledgement counts if it contains a
sequence, and at the end every token must have been acknowledged as often as it was used.
"""

from dataclasses import dataclass, field

from natsd.bench import wire
from natsd.bench.frames import hpub, payload, pub
from natsd.bench.jetstream.connected import Connected, timed
from natsd.bench.jetstream.load import PubAcks
from natsd.bench.result import RoleResult

INBOX = b"_INBOX.bench"
WINDOW = 4_000
TOKENS = 8_000
CHUNK_MIN = 100
assert TOKENS >= 2 * WINDOW


@dataclass
class WindowPublisher(Connected):
    """A publisher of `messages` messages to `subjects` subjects in turn."""

    subject: bytes
    """The subject; with several subjects it contains a `%d` format for the subject's number."""
    subjects: int
    messages: int
    payload_bytes: int = 128
    headers: bytes = b""
    """Whole header lines of each message; empty: no headers."""
    _block: bytes = field(init=False, repr=False, default=b"")

    def prepare(self) -> None:
        """Connect, subscribe to acknowledgements, and encode the frames."""
        self._connect(INBOX + b".*")
        if self.subjects <= TOKENS:
            assert TOKENS % self.subjects == 0
            self._block = self._frames(0)

    def run(self) -> RoleResult:
        """Publish everything; the run ends with the last acknowledgement."""
        acks = PubAcks(self._sock.fileno(), TOKENS)
        result = timed("publisher", lambda: self._publish(acks))
        counts = acks.counts()
        if not result.problem and counts != self._expected():
            result.problem = "publisher: some messages were acknowledged twice, others never"
        result.sent, result.received = self.messages, sum(counts)
        return result

    def _publish(self, acks: PubAcks) -> None:
        sent = acked = 0
        block = memoryview(self._block)
        while acked < self.messages:
            position = sent % TOKENS
            room = min(WINDOW - (sent - acked), self.messages - sent, TOKENS - position)
            if room >= CHUNK_MIN or (room and (sent == acked or sent + room == self.messages)):
                if position == 0 and self.subjects > TOKENS:
                    block = memoryview(self._frames(sent))
                size = len(block) // TOKENS
                self._sock.sendall(block[position * size : (position + room) * size])
                sent += room
                continue
            if not acks.fill():
                raise wire.LoadError(f"acknowledgements stopped after {acked:,}")
            acked += acks.take()

    def _frames(self, first: int) -> bytes:
        """Return one frame for each token, beginning with message number `first`."""
        body = payload(self.payload_bytes)
        return b"".join(
            self._frame(self._subject(first + token), body, b"%s.%05d" % (INBOX, token))
            for token in range(TOKENS)
        )

    def _frame(self, subject: bytes, body: bytes, reply: bytes) -> bytes:
        if self.headers:
            return hpub(subject, self.headers, body, reply)
        return pub(subject, body, reply)

    def _subject(self, number: int) -> bytes:
        if self.subjects == 1:
            return self.subject
        return self.subject % (number % self.subjects)

    def _expected(self) -> list[int]:
        rounds, rest = divmod(self.messages, TOKENS)
        return [rounds + (token < rest) for token in range(TOKENS)]


def fill(
    host: str, port: int, subject: bytes, subjects: int, messages: int, headers: bytes = b""
) -> None:
    """Publish `messages` messages from this process, before anything is measured.

    Raises LoadError if they are not all acknowledged.
    """
    publisher = WindowPublisher(host, port, subject, subjects, messages, headers=headers)
    publisher.prepare()
    try:
        result = publisher.run()
    finally:
        publisher.close()
    if result.problem:
        raise wire.LoadError(result.problem)
