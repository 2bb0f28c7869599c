"""The clients' side of the JetStream rows, compiled; load.pyx describes it."""

from collections.abc import MutableSequence

class FrameReader:
    """A reader of whole frames from a socket."""

    def __init__(self, descriptor: int) -> None: ...
    received_bytes: int
    def fill(self) -> int:
        """Read from the socket once and return the number of bytes; 0: nothing came in time.

        Blocks until bytes arrive or the socket's receive timeout has passed. Raises LoadError if
        the server closes the connection.
        """

class PubAcks(FrameReader):
    """A reader of publish acknowledgements, each of which is checked."""

    def __init__(self, descriptor: int, tokens: int) -> None: ...
    last_sequence: int
    def take(self) -> int:
        """Process the received frames and return the number of acknowledgements.

        Raises LoadError for an error, or for an acknowledgement of an unknown token.
        """

    def counts(self) -> list[int]:
        """Return the number of acknowledgements for each token."""

class AnsweringReader(FrameReader):
    """A reader of frames, some of which have to be answered."""

    def answers(self) -> bytes:
        """Return the frames to send since the last call: acks, and replies to flow control."""

class Deliveries(AnsweringReader):
    """A reader of messages from a consumer, in order and without a gap, with their acks."""

    def __init__(self, descriptor: int, *, acknowledges: bool) -> None: ...
    received: int
    last_sequence: int
    last_consumer_sequence: int
    pending: int
    status: bytes
    def take(self) -> int:
        """Process the received frames and return the number of messages.

        Raises LoadError for a message that is out of order or was delivered before.
        """

class StoredMessages(FrameReader):
    """A reader of the answers to a direct get of a batch: consecutive sequences, then the end."""

    received: int
    last_sequence: int
    ended: bool
    def take(self) -> int:
        """Process the received frames and return the number of messages.

        Raises LoadError for an error, or a message that is out of order.
        """

    def next_batch(self) -> None:
        """Begin another batch: `ended` is false again."""

class Chunks(AnsweringReader):
    """A reader of a snapshot's chunks, with the answers to send for them."""

    data_bytes: int
    ended: bool
    def take(self) -> int:
        """Process the received frames and return the number of data bytes.

        Raises LoadError if the server breaks the snapshot off.
        """

class Callers:
    """Clients that each wait for an answer before they send the next request."""

    def __init__(
        self, descriptors: list[int], requests: list[bytes], request_bytes: int, data_bytes: int
    ) -> None: ...
    def run(self, calls: int, latencies_ns: MutableSequence[int] | None = None) -> int:
        """Make `calls` calls in all and return how many were answered.

        With `latencies_ns` the ns of each call are appended to it. Raises LoadError for a wrong
        answer or none.
        """
