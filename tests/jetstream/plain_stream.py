"""A stream and its consumers, as plain as can be: what the server is compared with.

It knows no time: nothing expires, an ack wait never ends; a message comes again after a negative
acknowledgement only. Sequences are decided here as the server must decide them.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Delivery:
    """A message that a consumer has delivered and that waits for its acknowledgement."""

    sequence: int
    count: int
    reply: str


@dataclass
class PlainConsumer:
    """A pull consumer with explicit acknowledgements."""

    name: str
    subjects: frozenset[str]
    next_sequence: int = 1
    waiting: dict[int, Delivery] = field(default_factory=dict)
    again: list[int] = field(default_factory=list)

    def wants(self, subject: str) -> bool:
        return subject in self.subjects


@dataclass
class PlainStream:
    """`retention`: limits, interest or workqueue; `max_msgs`: 0, no limit."""

    retention: str
    max_msgs: int = 0
    last: int = 0
    messages: dict[int, str] = field(default_factory=dict)
    consumers: dict[str, PlainConsumer] = field(default_factory=dict)

    @property
    def first(self) -> int:
        return min(self.messages, default=self.last + 1)

    def publish(self, subject: str) -> int:
        self.last += 1
        wanted = [c for c in self.consumers.values() if c.wants(subject)]
        if wanted or self.retention != "interest":
            self.messages[self.last] = subject
        if self.max_msgs:
            while len(self.messages) > self.max_msgs:
                self.remove(self.first)
        return self.last

    def remove(self, sequence: int) -> None:
        """It is gone, and nobody waits for it any more."""
        del self.messages[sequence]
        for consumer in self.consumers.values():
            consumer.waiting.pop(sequence, None)
            if sequence in consumer.again:
                consumer.again.remove(sequence)

    def purge(self, subject: str | None, keep: int = 0, up_to: int = 0) -> int:
        """How many went: of the subject or all, but the last `keep`, or those below `up_to`."""
        found = [s for s, name in self.messages.items() if subject in (None, name)]
        if up_to:
            found = [s for s in found if s < up_to]
        if keep:
            found = found[:-keep]
        for sequence in found:
            self.remove(sequence)
        return len(found)

    def new_for(self, consumer: PlainConsumer) -> list[int]:
        """What it has not delivered yet."""
        return [
            sequence
            for sequence, subject in sorted(self.messages.items())
            if sequence >= consumer.next_sequence and consumer.wants(subject)
        ]

    def done(self, consumer: PlainConsumer, sequence: int) -> None:
        """Acknowledged, or given up."""
        del consumer.waiting[sequence]
        if sequence in consumer.again:
            consumer.again.remove(sequence)
        if self.retention == "workqueue" or (
            self.retention == "interest" and not self._is_wanted(sequence)
        ):
            del self.messages[sequence]

    def _is_wanted(self, sequence: int) -> bool:
        subject = self.messages[sequence]
        return any(
            consumer.wants(subject)
            and (sequence in consumer.waiting or sequence >= consumer.next_sequence)
            for consumer in self.consumers.values()
        )
