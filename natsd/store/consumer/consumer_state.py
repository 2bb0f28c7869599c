"""A consumer's state as a value: what was delivered, what is acknowledged, and what is pending.

Invariants of a whole state (`validate`)
- The ack floor is at or below the last delivery, in both sequences.
- A pending message lies above the ack floor and at or below the last delivery, in stream sequences.
  So does a held message, which is not pending.
- A terminated message is pending.

Source: nats-server's `ConsumerState` (server/store.go).
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from natsd.store.errors import InvalidConsumerState


class AckPolicyCode(enum.IntEnum):
    """Ack policies; the numbers are written to files. FLOW_CONTROL acknowledges as ALL does."""

    NONE = 0
    ALL = 1
    EXPLICIT = 2
    FLOW_CONTROL = 3


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The parts of a consumer's configuration that decide how its state changes."""

    ack_policy: AckPolicyCode = AckPolicyCode.EXPLICIT
    max_deliver: int = 0  # deliveries of a message at most; 0: no limit


@dataclass(frozen=True, slots=True)
class SequencePair:
    """One delivery's sequence in the consumer and in the stream; 0 means none yet."""

    consumer: int = 0
    stream: int = 0


@dataclass(frozen=True, slots=True)
class Pending:
    """A message that waits for its ack."""

    sequence: int  # consumer sequence of the first delivery
    time_ns: int  # time of the last delivery, in nanoseconds since 1970


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """The state of a consumer; the keys of `pending` and `redelivered` are stream sequences."""

    delivered: SequencePair = SequencePair()  # the last delivery
    ack_floor: SequencePair = SequencePair()  # all messages up to it are acknowledged
    pending: Mapping[int, Pending] = field(default_factory=dict)
    redelivered: Mapping[int, int] = field(default_factory=dict)  # deliveries after the first
    # Runs (first, last), ascending, of messages that were read but are delivered after later
    # messages. None: all messages were delivered in order.
    held: tuple[tuple[int, int], ...] | None = None
    terminated: frozenset[int] = frozenset()  # never delivered again, and not acknowledged yet

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
