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

class Deliveries(FrameReader):
    """Messages from a consumer, in order and without a gap, with the acks to send for them."""

    def __init__(self, descriptor: int, *, acknowledges: bool) -> None: ...
    received: int
    last_sequence: int
    last_consumer_sequence: int
    pending: int
    status: bytes
    def take(self) -> int:
        """How many were read."""

    def answers(self) -> bytes:
        """Acks, and answers to flow control, since the last call."""

class Callers:
    """Clients that each wait for one answer before the next request."""

    def __init__(
        self, descriptors: list[int], requests: list[bytes], request_bytes: int, data_bytes: int
    ) -> None: ...
    def run(self, calls: int, latencies_ns: MutableSequence[int] | None = None) -> int:
        """Make so many calls in all; how many were answered. Raises LoadError."""
