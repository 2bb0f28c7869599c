"""What clients did and what they were told; times are `time.monotonic_ns`.

- A publish has an id that nobody else uses; its payload follows from the id (`payload_of`).
- A publish whose answer did not come may be stored, at any later time, or never.
"""

import time
import zlib
from dataclasses import dataclass, field

from tests.sim.linearizability import Operation

PAYLOAD_BYTES_MAX = 2048
LATE_S = 5.0
"""An answer this late is no longer awaited."""

now_ns = time.monotonic_ns


def payload_of(message_id: str) -> bytes:
    """Return the payload of a message; its length follows from the id, too."""
    name = message_id.encode()
    length = zlib.crc32(name) % PAYLOAD_BYTES_MAX
    return name + b"|" + name * (length // len(name))


def id_in(payload: bytes) -> str:
    """Return the id of the message that has such a payload."""
    return payload.partition(b"|")[0].decode("utf-8", "replace")


@dataclass(slots=True)
class Publish:
    """A message that was published, once or again and again with the same message id."""

    message_id: str
    called_ns: int
    """When it was published for the first time."""
    acked_ns: int = 0
    """When the acknowledgement came; 0: it did not."""
    sequence: int = 0
    """The sequence in the acknowledgement."""
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as a consumer's client got it."""

    sequence: int
    payload: bytes
    at_ns: int


@dataclass(frozen=True, slots=True)
class AgedRead:
    """What a read replica showed as the last message of a subject, and how old it may be."""

    publisher: str
    """Who publishes to the subject."""
    sequence: int
    """Sequence of the message; 0: there was none."""
    called_ns: int
    age_ns: int


@dataclass(slots=True)
class KeyWrite:
    """A compare-and-set of a key."""

    key: str
    value: int
    expected_revision: int
    expected_value: int
    called_ns: int
    returned_ns: int = 0
    """When the answer came; 0: it did not."""
    revision: int = 0
    """The revision in the acknowledgement; 0: there is none."""
    is_refused: bool = False
    """Whether the answer was that the key has another revision."""


@dataclass(slots=True)
class Journal:
    """All that was promised."""

    publishes: dict[str, Publish] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    confirmed_ns: dict[int, int] = field(default_factory=dict)
    """When the answer to a consumer's ack came, by the sequence of the stream."""
    key_writes: list[KeyWrite] = field(default_factory=list)
    key_reads: dict[str, list[Operation]] = field(default_factory=dict)
    aged_reads: list[AgedRead] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    """How often each kind of failure was seen by clients."""
    recoveries_s: list[float] = field(default_factory=list)
    """Seconds from each loss of a leader to the first acknowledged publish that began later."""

    @property
    def acked(self) -> list[Publish]:
        return [each for each in self.publishes.values() if each.acked_ns]

    def begin(self, message_id: str) -> Publish:
        assert message_id not in self.publishes
        publish = self.publishes[message_id] = Publish(message_id, now_ns())
        return publish

    def failed(self, error: BaseException) -> None:
        name = f"{type(error).__name__} {getattr(error, 'code', '')}".rstrip()
        self.failures[name] = self.failures.get(name, 0) + 1
