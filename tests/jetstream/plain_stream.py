"""A plain model of a stream and its consumers, with which the server is compared.

The model knows no time: nothing expires, and an ack wait never ends. A message is redelivered only
after a negative acknowledgement. The model assigns sequences as the server must assign them.
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
    """A stream; `retention` is limits, interest or workqueue, and `max_msgs` of 0 is no limit."""

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
        """Remove a message from the stream and from all pending lists."""
        del self.messages[sequence]
        for consumer in self.consumers.values():
            consumer.waiting.pop(sequence, None)
            if sequence in consumer.again:
                consumer.again.remove(sequence)

    def purge(self, subject: str | None, keep: int = 0, up_to: int = 0) -> int:
        """Remove messages of a subject, or all, and return their number.

        The last `keep` messages stay; with `up_to`, only messages below that sequence are removed.
        """
        found = [s for s, name in self.messages.items() if subject in (None, name)]
        if up_to:
            found = [s for s in found if s < up_to]
        if keep:
            found = found[:-keep]
        for sequence in found:
            self.remove(sequence)
        return len(found)

    def new_for(self, consumer: PlainConsumer) -> list[int]:
        """Return the sequences that the consumer has not delivered yet."""
        return [
            sequence
            for sequence, subject in sorted(self.messages.items())
            if sequence >= consumer.next_sequence and consumer.wants(subject)
        ]

    def done(self, consumer: PlainConsumer, sequence: int) -> None:
        """Note that the consumer has acknowledged or terminated a message."""
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
