"""What a consumer's state is, as a value: what was delivered, what is acknowledged, what is not.

Invariants of a whole state (`validate`)
- The ack floor is at or below what was delivered, in both sequences.
- A pending message lies above the floor and at or below what was delivered, in stream sequences; so
  does what is held, which is not pending.
- What is terminated is pending.

Source: nats-server's ConsumerState; nats-server 2.14 reference 11.2 (consumer state).
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from natsd.store.errors import InvalidConsumerState


class AckPolicy(enum.IntEnum):
    """The number is what files say. FLOW_CONTROL acknowledges as ALL does."""

    NONE = 0
    ALL = 1
    EXPLICIT = 2
    FLOW_CONTROL = 3


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """What of a consumer's configuration decides how its state changes; 0: deliver for ever."""

    ack_policy: AckPolicy = AckPolicy.EXPLICIT
    max_deliver: int = 0


@dataclass(frozen=True, slots=True)
class SequencePair:
    """The same delivery, counted by the consumer and by the stream; 0: none yet."""

    consumer: int = 0
    stream: int = 0


@dataclass(frozen=True, slots=True)
class Pending:
    """A message that waits for its ack: its first delivery's consumer sequence, its last's time."""

    sequence: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """`pending` and `redelivered` (counts of deliveries after the first) by stream sequence.

    `held`: runs (first, last), in order, of what was read and is delivered later than what lies
    behind it; None: all was delivered in order. `terminated`: never to be delivered again, and not
    acknowledged yet.
    """

    delivered: SequencePair = SequencePair()
    ack_floor: SequencePair = SequencePair()
    pending: Mapping[int, Pending] = field(default_factory=dict)
    redelivered: Mapping[int, int] = field(default_factory=dict)
    held: tuple[tuple[int, int], ...] | None = None
    terminated: frozenset[int] = frozenset()

    def validate(self) -> None:
        """Raise `InvalidConsumerState` if an invariant does not hold."""
        if self.ack_floor.consumer > self.delivered.consumer:
            raise InvalidConsumerState("bad ack floor for consumer")
        if self.ack_floor.stream > self.delivered.stream:
            raise InvalidConsumerState("bad ack floor for stream")
        for sequence, pending in self.pending.items():
            if not self.ack_floor.stream < sequence <= self.delivered.stream:
                raise InvalidConsumerState(f"bad pending entry, sequence [{sequence}] out of range")
            if pending.sequence < 1:
                raise InvalidConsumerState(f"bad pending entry [{sequence}], never delivered")
        last = self.ack_floor.stream
        for run in self.held or ():
            if not last < run[0] <= run[1] <= self.delivered.stream:
                raise InvalidConsumerState(f"bad held entries {run}, out of range")
            last = run[1]
        if not self.terminated <= self.pending.keys():
            raise InvalidConsumerState("bad terminated entries, never delivered")
