"""A model of a store, made of a dictionary, that both kinds of store are compared with.

The model is neither fast, sliced nor durable. Limits and discard policies are those of
nats-server's memory store (`memStore`). A message counts with its record's length in bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from natsd.core import routing as subjects
from natsd.store.errors import (
    MaximumBytesExceeded,
    MaximumMessagesExceeded,
    MaximumMessageSizeExceeded,
    MaximumMessagesPerSubjectExceeded,
    SequenceMismatch,
)
from natsd.store.store import Discard, Limits


@dataclass(frozen=True)
class Plain:
    """A stored message, with times in nanoseconds.

    `expires_ns` is 0 if the message has no TTL of its own, and -1 if it never expires.
    """

    sequence: int
    subject: str
    headers: bytes | None
    data: bytes
    time_ns: int
    expires_ns: int

    @property
    def size(self) -> int:
        """Length of the message's record in bytes."""
        expiry = 8 if self.expires_ns else 0
        return 40 + len(self.subject) + len(self.headers or b"") + len(self.data) + expiry


@dataclass
class PlainStore:
    """The model; its methods do and return the same as those of LogStore."""

    limits: Limits
    messages: dict[int, Plain] = field(default_factory=dict)
    last: int = 0
    first_if_empty: int = 0
    last_time_ns: int = 0

    def __post_init__(self) -> None:
        self.last = max(self.limits.first_sequence, 1) - 1

    def copy(self) -> "PlainStore":
        """Return a copy of the messages and of the last sequence and time."""
        made = PlainStore(self.limits, dict(self.messages))
        made.last, made.last_time_ns = self.last, self.last_time_ns
        return made

    # Reading

    @property
    def first(self) -> int:
        """Sequence of the first message, or the next sequence if there is no message."""
        return min(self.messages, default=self.last + 1)

    @property
    def live_bytes(self) -> int:
        """Bytes of all messages."""
        return sum(message.size for message in self.messages.values())

    @property
    def deleted(self) -> list[int]:
        """Sequences without a message between the first message and the last sequence."""
        return [each for each in range(self.first, self.last + 1) if each not in self.messages]

    def matching(self, patterns: str | Sequence[str]) -> list[Plain]:
        """Return the messages whose subjects match any of the patterns, in order."""
        wanted = [patterns] if isinstance(patterns, str) else patterns
        return [
            self.messages[sequence]
            for sequence in sorted(self.messages)
            if any(subjects.matches(self.messages[sequence].subject, each) for each in wanted)
        ]

    def by_subject(self, patterns: str | Sequence[str]) -> dict[str, list[int]]:
        """Return the sequences of the matching messages by subject."""
        found: dict[str, list[int]] = {}
        for message in self.matching(patterns):
            found.setdefault(message.subject, []).append(message.sequence)
        return found

    def num_pending(self, first: int, patterns: str | Sequence[str], last_only: bool) -> int:
        """Return the number of matching messages from sequence `first` on.

        With `last_only` only the last message of each subject counts.
        """
        if last_only:
            return sum(each[-1] >= first for each in self.by_subject(patterns).values())
        return sum(message.sequence >= first for message in self.matching(patterns))

    def multi_last(self, patterns: Sequence[str], up_to: int) -> list[int]:
        """Return the last sequence of each matching subject up to `up_to` (0: no bound), sorted."""
        bound = up_to or self.last
        below = [
            [sequence for sequence in each if sequence <= bound]
            for each in self.by_subject(patterns).values()
        ]
        return sorted(each[-1] for each in below if each)

    def next_expiry_ns(self) -> int | None:
        """Return the time of the next expiry in nanoseconds, or None."""
        times = [message.expires_ns for message in self.messages.values() if message.expires_ns > 0]
        ageing = (each.time_ns for each in self.messages.values() if each.expires_ns >= 0)
        if self.limits.max_age_ns and (oldest := next(ageing, None)) is not None:
            times.append(oldest + self.limits.max_age_ns)
        return min(times, default=None)

    # Writing

    def append(
        self,
        subject: str,
        headers: bytes | None,
        data: bytes,
        time_ns: int,
        sequence: int = 0,
        expires_ns: int = 0,
    ) -> int:
        """Append a message and return its sequence; raises what `check` raises.

        A `sequence` of 0 stands for the next one.
        """
        appended = Plain(sequence or self.last + 1, subject, headers, data, time_ns, expires_ns)
        self.check(appended)
        self.messages[appended.sequence] = appended
        self.last, self.last_time_ns = appended.sequence, time_ns
        self.enforce()
        return appended.sequence

    def check(self, new: Plain) -> None:
        """Raise a StoreError if the limits refuse the message."""
        limits = self.limits
        if 0 < limits.max_msg_size < len(new.headers or b"") + len(new.data):
            raise MaximumMessageSizeExceeded
        if new.sequence <= self.last:
            raise SequenceMismatch
        if 0 < limits.max_bytes < new.size:
            raise MaximumBytesExceeded
        if limits.discard is Discard.OLD:
            return
        same = [each for each in self.messages.values() if each.subject == new.subject]
        full = 0 < limits.max_msgs_per_subject <= len(same)
        if full and limits.discard_new_per_subject:
            raise MaximumMessagesPerSubjectExceeded
        if 0 < limits.max_msgs <= len(self.messages) and not full:
            raise MaximumMessagesExceeded
        if 0 < limits.max_bytes < self.live_bytes + new.size:
            goes = min(same, key=lambda each: each.sequence).size if full else 0
            if self.live_bytes - goes + new.size > limits.max_bytes:
                raise MaximumBytesExceeded

    def enforce(self) -> None:
        """Remove the oldest messages above the limits."""
        limits = self.limits
        if limits.max_msgs_per_subject > 0:
            for sequences in self.by_subject(">").values():
                for sequence in sequences[: -limits.max_msgs_per_subject]:
                    del self.messages[sequence]
        if limits.discard is Discard.NEW:
            return
        while 0 < limits.max_msgs < len(self.messages) or 0 < limits.max_bytes < self.live_bytes:
            del self.messages[self.first]

    def skip(self, count: int) -> int:
        """Skip `count` sequences and return the last one."""
        self.last += count
        return self.last

    def delete(self, sequence: int) -> bool:
        """Remove a message and return whether it was there."""
        return self.messages.pop(sequence, None) is not None

    def purge(self, pattern: str, up_to: int, keep: int) -> int:
        """Remove matching messages below `up_to` but the newest `keep`; return their number."""
        found = [message.sequence for message in self.matching(pattern)]
        gone = [each for each in found[: len(found) - keep] if not up_to or each < up_to]
        if len(found) <= keep:
            return 0
        for sequence in gone:
            del self.messages[sequence]
        return len(gone)

    def compact(self, sequence: int) -> int:
        """Remove all messages below the sequence (0: all messages); return their number."""
        if sequence == 0:
            return self.purge(">", 0, 0)
        gone = [each for each in self.messages if each < sequence]
        for each in gone:
            del self.messages[each]
        self.last = max(self.last, sequence - 1)
        return len(gone)

    def truncate(self, sequence: int) -> None:
        """Remove all messages above the sequence, which becomes the last one."""
        if sequence >= self.last:
            return
        for each in [each for each in self.messages if each > sequence]:
            del self.messages[each]
        self.last = sequence
        if sequence in self.messages:
            self.last_time_ns = self.messages[sequence].time_ns

    def expire(self, now_ns: int) -> int:
        """Remove the messages whose time has come by `now_ns`; return their number."""
        count = len(self.messages)
        for sequence in sorted(self.messages) if self.limits.max_age_ns else []:
            message = self.messages[sequence]
            if message.time_ns > now_ns - self.limits.max_age_ns:
                break
            if message.expires_ns >= 0:
                del self.messages[sequence]
        for message in list(self.messages.values()):
            if 0 < message.expires_ns <= now_ns:
                del self.messages[message.sequence]
        return count - len(self.messages)

    def update_limits(self, limits: Limits) -> None:
        """Replace the limits and enforce them."""
        self.limits = limits
        self.enforce()
