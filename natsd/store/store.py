"""The face of a stream's storage: what FileStore and MemStore both are.

A store keeps messages under sequences that only grow. `append` decides at once, against everything
appended so far, durable or not; `synced` waits until all of that is on disk. Reads have two forms:
`…_cached` answers now or says None (it is on disk, not in memory), the awaitable one reads. Clocks
are arguments: a store reads none. Sequence 0 stands for "none" or "from the start".

Bytes of a message, wherever bytes are counted or limited: its record's length, header, subject and
checksums included (natsd.store.record).

Source: nats-server's StreamStore (server/store.go) for what each operation means.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from natsd.store.errors import InvalidLimits, StoreError
from natsd.store.sequence_set import SequenceSet

if TYPE_CHECKING:
    from natsd.store.record import StoredMessage

UNLIMITED = -1


class Discard(Enum):
    """What gives way when `max_msgs` or `max_bytes` is reached."""

    OLD = "old"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class Limits:
    """-1 or 0 is no limit, as for nats-server; `first_sequence` is for a store that is new.

    `uncounted_bytes` of each record neither count for `max_bytes` nor are told in the state: what
    a record is longer here than where the limits come from.
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
    """`num_deleted`: sequences between first and last without a message."""

    msgs: int = 0
    bytes: int = 0
    first_sequence: int = 0
    first_time_ns: int = 0
    last_sequence: int = 0
    last_time_ns: int = 0
    num_subjects: int = 0
    num_deleted: int = 0
    deleted: SequenceSet | None = None


@dataclass(frozen=True, slots=True)
class SubjectState:
    """One subject's messages."""

    msgs: int
    first: int
    last: int


class DurabilityListener(Protocol):
    """Who acknowledges and shows what has become durable; called on the store's event loop, at most
    once for each commit. It may append and remove, but raises nothing."""

    def durable(self, sequence: int) -> None:
        """All up to this one is durable, and so is what was removed before the commit began."""

    def failed(self, error: StoreError) -> None:
        """What was done since the last commit has been taken back: the store ends at its
        `durable_sequence`, and what was removed since is there again."""


class Store(Protocol):
    """One stream's messages. Everything but `load*` and `state` raises StoreClosed after `close`;
    everything that writes raises StoreReadOnly or StoreFull when the disk did."""

    @property
    def limits(self) -> Limits: ...

    @property
    def durable_sequence(self) -> int:
        """All up to this one is on disk, in memory for a MemStore."""

    def set_durability_listener(self, listener: DurabilityListener | None) -> None:
        """The one to be told of commits from now on. A MemStore never tells: what is done in it is
        durable at once."""

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
        """The message's sequence: the next one, or the one given, which may leave a gap.

        `expires_ns` is the time at which the message goes, 0 for never. Raises LimitExceeded, and
        SequenceMismatch for a sequence at or below the last.
        """

    def append_many(
        self, messages: Iterable[tuple[str | bytes, bytes | None, bytes]], time_ns: int
    ) -> int:
        """Append (subject, headers, data) in order, without a call for each; the last sequence.
        Where one is refused, those before it are in."""

    def append_together(
        self, messages: Iterable[tuple[str | bytes, bytes | None, bytes]], time_ns: int
    ) -> int:
        """Append (subject, headers, data) as a batch: all of it is stored, seen and found after a
        crash, or nothing. The last sequence. Raises LimitExceeded for what no message may exceed;
        that discard new leaves room for all is the caller's to know."""

    @property
    def is_over_limit(self) -> bool:
        """More waits to be durable than may: publishers are to wait for `room`."""

    async def room(self) -> None:
        """Returns once no more waits to be durable than may, or the disk refuses more."""

    async def synced(self) -> None:
        """Returns once all that was done before the call is durable."""

    def skip(self, count: int = 1) -> int:
        """Use up sequences without a message; the last of them."""

    async def delete(self, sequence: int) -> bool:
        """Was it there?"""

    async def erase(self, sequence: int) -> bool:
        """Delete, and overwrite the bytes once that is durable."""

    async def purge(
        self, *, pattern: str | None = None, up_to_sequence: int = 0, keep: int = 0
    ) -> int:
        """Remove what matches: below `up_to_sequence` (0: all), but for the newest `keep`. The
        number removed. Both bounds may be given; what either keeps is kept."""

    async def compact(self, sequence: int) -> int:
        """Remove all below `sequence`, which may lie past the end: appending goes on there."""

    async def truncate(self, sequence: int) -> None:
        """Forget all above `sequence`, as if it had never been appended; 0 empties the store."""

    def update_limits(self, limits: Limits, now_ns: int) -> None:
        """Take new limits, and remove what they forbid."""

    def next_expiry_ns(self) -> int | None:
        """When `expire` should next be called; never later than something expires."""

    async def expire(self, now_ns: int) -> int:
        """Remove what is over age or past its own expiry; the number removed."""

    # Reading

    def load_cached(self, sequence: int) -> StoredMessage | None:
        """Raises MessageNotFound, MessageDamaged, and StoreEOF past the end."""

    async def load(self, sequence: int) -> StoredMessage: ...

    def load_last_cached(self, subject: str) -> StoredMessage | None:
        """The last one on `subject`, which may be a pattern. Raises MessageNotFound."""

    async def load_last(self, subject: str) -> StoredMessage: ...

    def load_next_cached(
        self, filters: str | Sequence[str], from_sequence: int
    ) -> tuple[StoredMessage, int] | None:
        """The first match at or after `from_sequence`, and how many sequences lie between the two.
        Raises StoreEOF if there is none."""

    async def load_next(
        self, filters: str | Sequence[str], from_sequence: int
    ) -> tuple[StoredMessage, int]: ...

    def read_batch_cached(
        self, from_sequence: int, messages_max: int, bytes_max: int
    ) -> list[StoredMessage] | None:
        """Messages in order from `from_sequence` on, at least one, until either number is reached
        or a block is not in memory. Raises StoreEOF if there is none."""

    async def read_batch(
        self, from_sequence: int, messages_max: int, bytes_max: int
    ) -> list[StoredMessage]: ...

    async def multi_last(
        self, filters: Sequence[str], up_to_sequence: int = 0, max_allowed: int = -1
    ) -> list[int]:
        """The last sequence, at or below `up_to_sequence` (0: the end), of each subject that
        matches a filter, in order. Raises TooManyResults."""

    def state(self, *, with_deleted: bool = False) -> StoreState: ...

    async def subject_states(self, pattern: str) -> dict[str, SubjectState]: ...

    async def subject_totals(self, pattern: str) -> dict[str, int]: ...

    async def num_pending(
        self, from_sequence: int, filters: str | Sequence[str], last_per_subject: bool = False
    ) -> tuple[int, int]:
        """How many match at or after `from_sequence`, and the last sequence that this covers. With
        `last_per_subject` only messages that are the last of their subject count."""

    async def sequence_at(self, time_ns: int) -> int:
        """The first message at or after a time; the last sequence + 1 if there is none."""

    # All of it

    def snapshot(self) -> AsyncIterator[bytes]:
        """The contents as a stream of bytes that `restore` of either store takes."""

    async def close(self) -> None:
        """Everything done is durable when this returns."""

    async def destroy(self) -> None:
        """Remove the store and all its messages."""
