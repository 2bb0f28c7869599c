"""The interface of a stream's storage, which FileStore and MemStore both have.

A store keeps messages under sequences that only grow. `append` decides at once, against everything
appended so far, durable or not; `synced` waits until all of that is on disk. Reads have two forms:
`…_cached` answers at once or returns None (the message is on disk, not in memory), the awaitable
form reads it from disk. Clocks are arguments: a store reads none. Sequence 0 stands for "none" or
"from the start".

Bytes of a message, wherever bytes are counted or limited, are its record's length, with header,
subject and checksums (natsd.store.codec.records).

Source: nats-server's `StreamStore` (server/store.go) for the meaning of each operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from natsd.store.errors import InvalidLimits, StoreError
from natsd.store.sequence_set import SequenceSet

if TYPE_CHECKING:
    from natsd.store.codec.records import StoredMessage

UNLIMITED = -1


class RemovalCause(Enum):
    """Why messages were removed."""

    DELETED = "deleted"
    ERASED = "erased"
    PURGED = "purged"
    EXPIRED = "expired"
    OVER_LIMIT = "over limit"


class Discard(Enum):
    """The messages to discard when `max_msgs` or `max_bytes` is reached."""

    OLD = "old"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a stream; -1 or 0 is no limit, as in nats-server.

    `first_sequence` counts only for a new store. `uncounted_bytes` of each record neither count for
    `max_bytes` nor appear in the state: each record is that much longer here than in the store from
    which the limits come.
    """

    max_msgs: int = UNLIMITED
    max_bytes: int = UNLIMITED
    max_age_ns: int = 0
    max_msgs_per_subject: int = UNLIMITED
    max_msg_size: int = UNLIMITED
    discard: Discard = Discard.OLD
    discard_new_per_subject: bool = False
    first_sequence: int = 0
    uncounted_bytes: int = 0

    def __post_init__(self) -> None:
        if self.max_age_ns < 0 or self.first_sequence < 0:
            raise InvalidLimits("max_age_ns and first_sequence are not negative")
        if not self.discard_new_per_subject:
            return
        if self.discard is not Discard.NEW:
            raise InvalidLimits("discard new per subject requires discard new policy to be set")
        if self.max_msgs_per_subject <= 0:
            raise InvalidLimits("discard new per subject requires max msgs per subject > 0")


@dataclass(frozen=True, slots=True)
class StoreState:
    """The state of a store.

    `bytes` is the length of all records, less their `uncounted_bytes`. `num_deleted` is the number
    of sequences between first and last without a message; `deleted` has these sequences, or is None
    if they were not asked for. Times are ns since the Unix epoch.
    """

    msgs: int = 0
    bytes: int = 0
    first_sequence: int = 0
    first_time_ns: int = 0
    last_sequence: int = 0
    last_time_ns: int = 0
    num_subjects: int = 0
    num_deleted: int = 0
    deleted: SequenceSet | None = None


class DurabilityListener(Protocol):
    """A listener that acknowledges and shows messages once they are durable.

    It is called on the store's event loop, at most once for each commit. It may append and remove,
    but must raise nothing.
    """

    def durable(self, sequence: int) -> None:
        """Acknowledge and show all messages up to `sequence`, which are durable now.

        All removals that were made before the commit began are durable too.
        """

    def failed(self, error: StoreError) -> None:
        """Withdraw all changes since the last commit, which the store has taken back.

        The store ends at its `durable_sequence`, and the messages removed since are there again.
        """


class Store(Protocol):
    """One stream's messages.

    After `close` every method but `load*` and `state` raises StoreClosed. Every method that writes
    raises StoreFull if space is missing, and StoreReadOnly if the disk failed.
    """

    @property
    def limits(self) -> Limits:
        """The current limits."""

    @property
    def durable_sequence(self) -> int:
        """Highest sequence up to which all messages are on disk; of a MemStore, the last one."""

    def set_durability_listener(self, listener: DurabilityListener | None) -> None:
        """Register a listener that is told of each later commit; None: no listener.

        A MemStore never calls it: its changes are durable at once.
        """

    # Writing

    def append(
        self,
        subject: str | bytes,
        headers: bytes | None,
        data: bytes,
        time_ns: int,
        *,
        sequence: int = 0,
        expires_ns: int = 0,
    ) -> int:
        """Append a message and return its sequence.

        The sequence is the next one, or `sequence` if that is not 0, which may leave a gap.
        `expires_ns` is the time at which the message is removed (ns since the Unix epoch), 0 for
        never. Raises LimitExceeded, and SequenceMismatch for a sequence at or below the last.
        """

    def append_many(
        self, messages: Iterable[tuple[str | bytes, bytes | None, bytes]], time_ns: int
    ) -> int:
        """Append (subject, headers, data) in order, faster than by single calls.

        Return the last sequence. If one message is refused, those before it are stored. Raises
        LimitExceeded.
        """

    def append_together(
        self, messages: Iterable[tuple[str | bytes, bytes | None, bytes]], time_ns: int
    ) -> int:
        """Append (subject, headers, data) as one batch and return the last sequence.

        Either all messages of the batch are stored, seen, and found after a crash, or none is.
        Raises LimitExceeded if a message is too large for the limits; the caller must know that
        discard new leaves room for all.
        """

    @property
    def is_over_limit(self) -> bool:
        """Whether too much waits to be durable; publishers must then wait for `room`."""

    async def room(self) -> None:
        """Return once no more waits to be durable than may, or the disk refuses more."""

    async def synced(self) -> None:
        """Return once every change made before the call is durable."""

    def skip(self, count: int = 1) -> int:
        """Use up `count` sequences without a message and return the last of them."""

    async def delete(self, sequence: int) -> bool:
        """Remove the message and return whether it was there."""

    async def erase(self, sequence: int) -> bool:
        """Remove the message, and overwrite its bytes once the removal is durable.

        Return whether it was there.
        """

    async def purge(
        self, *, pattern: str | None = None, up_to_sequence: int = 0, keep: int = 0
    ) -> int:
        """Remove messages and return their number.

        Messages are removed if they match `pattern` (None: every subject) and are below
        `up_to_sequence` (0: all), except the newest `keep` of them. If both bounds are given, a
        message that either bound keeps is kept.
        """

    async def compact(self, sequence: int) -> int:
        """Remove all messages below `sequence` and return their number.

        `sequence` may lie behind the end: then appending goes on there. 0 removes all messages.
        """

    async def truncate(self, sequence: int) -> None:
        """Forget all above `sequence`, as if it had never been appended; 0 empties the store."""

    def update_limits(self, limits: Limits, now_ns: int) -> None:
        """Replace the limits, and remove the messages that exceed the new ones."""

    def next_expiry_ns(self) -> int | None:
        """Return the time (ns since the Unix epoch) at which `expire` is due; None: never.

        It is never later than the next expiry, but may be earlier.
        """

    async def expire(self, now_ns: int) -> int:
        """Remove the messages that are over age or past their own expiry; return their number."""

    # Reading

    def load_cached(self, sequence: int) -> StoredMessage | None:
        """Return the message with this sequence; None if it is not in memory.

        Raises MessageNotFound, MessageDamaged, and StoreEOF for a sequence behind the end.
        """

    async def load(self, sequence: int) -> StoredMessage:
        """Return the message with this sequence, from memory or disk; see `load_cached`."""

    def load_last_cached(self, subject: str) -> StoredMessage | None:
        """Return the last message on `subject`, which may be a pattern; None: not in memory.

        Raises MessageNotFound.
        """

    async def load_last(self, subject: str) -> StoredMessage:
        """Return the last message on `subject`, from memory or disk; see `load_last_cached`."""

    async def load_next(
        self, filters: str | Sequence[str], from_sequence: int
    ) -> tuple[StoredMessage, int]:
        """Return the first message at or after `from_sequence` that matches one of the filters.

        The second value is the number of sequences between `from_sequence` and the message. Raises
        StoreEOF if no message matches.
        """

    def read_batch_cached(
        self, from_sequence: int, messages_max: int, bytes_max: int
    ) -> list[StoredMessage] | None:
        """Return messages in order from `from_sequence` on, at least one.

        The batch ends when `messages_max` or `bytes_max` is reached, or a block is not in memory.
        Return None if the first message is not in memory. Raises StoreEOF if there is no message.
        """

    async def read_batch(
        self, from_sequence: int, messages_max: int, bytes_max: int
    ) -> list[StoredMessage]:
        """Return messages in order, from memory or disk; see `read_batch_cached`."""

    async def multi_last(
        self, filters: Sequence[str], up_to_sequence: int = 0, max_allowed: int = -1
    ) -> list[int]:
        """Return the last sequence of each subject that matches a filter, in order.

        Only messages at or below `up_to_sequence` count (0: all). Raises TooManyResults for more
        than `max_allowed` results (-1 or 0: no bound).
        """

    def state(self, *, with_deleted: bool = False) -> StoreState:
        """Return the store's state; its `deleted` is None unless `with_deleted`."""

    async def subject_totals(self, pattern: str) -> dict[str, int]:
        """Return the number of messages of each subject that matches `pattern`."""

    async def num_pending(
        self, from_sequence: int, filters: str | Sequence[str], last_per_subject: bool = False
    ) -> tuple[int, int]:
        """Return the number of matches at or after `from_sequence`.

        The second value is the last sequence that the number covers. With `last_per_subject`, only
        a message that is the last of its subject counts.
        """

    async def sequence_at(self, time_ns: int) -> int:
        """Return the sequence of the first message at or after a time (ns since the Unix epoch).

        If there is none, return the last sequence + 1.
        """

    # The whole store

    async def close(self) -> None:
        """Close the store; every change is durable on return."""

    async def destroy(self) -> None:
        """Remove the store and all its messages."""
