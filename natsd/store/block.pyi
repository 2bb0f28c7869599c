from typing import Self

from natsd.store.block_extent import BlockExtent as BlockExtent
from natsd.store.block_summary import BlockSummary
from natsd.store.damage import Damage
from natsd.store.record import StoredMessage
from natsd.store.scan import Scan
from natsd.store.sequence_set import SequenceSet

class MsgBlock:
    def __init__(
        self,
        block_id: int,
        seed: int,
        base_sequence: int,
        max_bytes: int,
        *,
        created_ns: int = 0,
        salt: bytes = b"",
        flags: int = 0,
    ) -> None: ...
    @classmethod
    def from_scan(cls, scan: Scan, max_bytes: int) -> Self: ...
    @classmethod
    def from_summary(cls, summary: BlockSummary, max_bytes: int) -> Self: ...
    def summary(self) -> BlockSummary: ...
    @property
    def block_id(self) -> int: ...
    @property
    def max_bytes(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def first_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def durable_size(self) -> int:
        """Logical bytes on disk."""

    def durable_bytes(self) -> bytes: ...
    @property
    def live_bytes(self) -> int: ...
    @property
    def message_count(self) -> int: ...
    @property
    def commit_number(self) -> int: ...
    @property
    def in_flight(self) -> BlockExtent | None: ...
    @property
    def void_previous(self) -> bool: ...
    @property
    def has_arrays(self) -> bool: ...
    @property
    def has_cache(self) -> bool: ...
    @property
    def cached_bytes(self) -> int:
        """Bytes of memory for the cached bytes."""

    @property
    def array_bytes(self) -> int:
        """Bytes of memory for the arrays, or for the set of dead sequences."""

    @property
    def dead(self) -> SequenceSet | None: ...
    @property
    def skipped(self) -> SequenceSet | None: ...
    @property
    def sealed(self) -> bool: ...
    @property
    def is_sealed(self) -> bool:
        """Whether the block is full or sealed: it takes no more messages."""

    @property
    def damage(self) -> list[Damage]:
        """The damage found in the block."""

    @property
    def deleted_sequences(self) -> SequenceSet: ...
    @property
    def deleted_count(self) -> int:
        """Number of removed and reserved sequences."""

    @property
    def max_skip_sequence(self) -> int: ...
    @property
    def last_record_checksum(self) -> bytes | None: ...
    def put(
        self,
        sequence: int,
        subject: str | bytes,
        headers: bytes | None,
        data: bytes,
        time_ns: int,
        expires_ns: int = 0,
        slot: int = ...,
    ) -> int: ...
    def skip(self, sequence: int, count: int = 1, time_ns: int = 0) -> int:
        """Reserve `count` sequences without messages; return the record's size in bytes."""

    def put_tombstones(self, encoded: bytes, erased: bool = False, time_ns: int = 0) -> int:
        """Append a record of removals, an encoded SequenceSet; return its size in bytes."""

    def get(self, sequence: int) -> StoredMessage | None: ...
    def is_live(self, sequence: int) -> bool: ...
    def is_deleted(self, sequence: int) -> bool: ...
    def is_damaged(self, sequence: int) -> bool: ...
    def offset_of(self, sequence: int) -> int: ...
    def record_bytes(self, sequence: int) -> int: ...
    def live_sequences(self) -> list[int]:
        """Return the sequences of all live messages, ascending; none without arrays."""

    def remove(self, sequence: int) -> bool:
        """Mark a message as removed, in memory; return whether it was live."""

    def restore(self, sequence: int) -> bool:
        """Mark a removed message as live again, in memory; return whether it was removed."""

    def erase_record(self, sequence: int, noise: bytes) -> bytes:
        """Replace a removed message's record by noise; return the new record, to be written."""

    def seal(self) -> None: ...
    def take_extent(
        self, commit_number: int, first_sequence: int, *, force: bool = False, closing: bool = False
    ) -> BlockExtent | None:
        """Take all bytes since the last commit, with marks; None: there is nothing to write.

        `force`: write a mark even without other bytes. `closing`: the mark says that everything
        before it is synced.
        """

    def committed(self) -> None:
        """Note that the extent in flight is on disk."""

    def rolled_back(self) -> None:
        """Undo all that is not on disk, the extent in flight included; removals stay."""

    def clear_cache(self) -> int: ...
    def take_cache_used(self) -> bool: ...
    def take_arrays_used(self) -> bool: ...
    def drop_arrays(self) -> int: ...
    def load(self, scan: Scan) -> list[int]: ...
    def forget_damage(self, offset: int) -> None: ...
