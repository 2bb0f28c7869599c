from collections.abc import MutableSequence

class FrameReader:
    """Whole frames from a socket."""

    def __init__(self, descriptor: int) -> None: ...
    received_bytes: int
    def fill(self) -> int:
        """Read once; 0 when nothing came in time. Raises LoadError when the server hangs up."""

class PubAcks(FrameReader):
    """Acknowledgements of publishes, each checked."""

    def __init__(self, descriptor: int, tokens: int) -> None: ...
    last_sequence: int
    def take(self) -> int:
        """How many were read; raises LoadError for an error, or an ack that nobody waits for."""

    def counts(self) -> list[int]:
        """How many acks came for each token."""

class AnsweringReader(FrameReader):
    """Frames of which some are to be answered."""

    def answers(self) -> bytes:
        """Acks, and answers to flow control, since the last call."""

class Deliveries(AnsweringReader):
    """Messages from a consumer, in order and without a gap, with the acks to send for them."""

    def __init__(self, descriptor: int, *, acknowledges: bool) -> None: ...
    received: int
    last_sequence: int
    last_consumer_sequence: int
    pending: int
    status: bytes
    def take(self) -> int:
        """How many were read."""

class StoredMessages(FrameReader):
    """Answers to a direct get of a batch: sequences without a gap, then the end."""

    received: int
    last_sequence: int
    ended: bool
    def take(self) -> int:
        """How many were read; raises LoadError for an error, or a message out of order."""

    def next_batch(self) -> None:
        """The one before has ended; another was asked for."""

class Chunks(AnsweringReader):
    """The chunks of a snapshot, with the answers to send for them."""

    data_bytes: int
    ended: bool
    def take(self) -> int:
        """How many bytes were read; raises LoadError if the server broke it off."""

class Callers:
    """Clients that each wait for one answer before the next request."""

    def __init__(
        self, descriptors: list[int], requests: list[bytes], request_bytes: int, data_bytes: int
    ) -> None: ...
    def run(self, calls: int, latencies_ns: MutableSequence[int] | None = None) -> int:
        """Make so many calls in all; how many were answered. Raises LoadError."""
