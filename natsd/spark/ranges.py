"""What a task reads: a range of one stream's sequences, and what of it is wanted.

Plain and picklable: the driver makes it, an executor reads it. Importing this is cheap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NO_END: Final = (1 << 63) - 1
"""The last sequence of a range that goes on as its stream does."""


@dataclass(frozen=True)
class RangeRequest:
    """Messages `first_sequence` to `last_sequence`, both inclusive, in their order.

    `subjects` are filters, with wildcards or without; empty: all. `start_time_ns` (inclusive) and
    `end_time_ns` (exclusive) leave out rows that are older or younger, since the epoch.
    `last_per_subject`: of each subject only its last message within the range; what marks a key
    as deleted is a message like any other. `fail_on_data_loss`: raise DataLoss rather than go on
    where the stream begins only behind `first_sequence`; sequences missing behind its beginning
    are holes, no loss.
    """

    stream: str
    first_sequence: int
    last_sequence: int
    subjects: tuple[str, ...] = ()
    fail_on_data_loss: bool = True
    last_per_subject: bool = False
    start_time_ns: int | None = None
    end_time_ns: int | None = None

    def __post_init__(self) -> None:
        if self.first_sequence < 1:
            raise ValueError(f"sequences begin with 1, not with {self.first_sequence}")

    @property
    def is_empty(self) -> bool:
        """Nothing can be in it."""
        return self.last_sequence < self.first_sequence


class DataLoss(Exception):
    """Messages of the range are gone, purged or expired, before they were read."""

    def __init__(self, stream: str, first: int, last: int) -> None:
        self.stream = stream
        self.first = first
        self.last = last
        super().__init__(
            f'messages {first} to {last} of stream "{stream}" are gone (purged, expired or '
            "discarded) before they were read: set failOnDataLoss to false to go on behind them"
        )

    def __reduce__(self) -> tuple[type[DataLoss], tuple[str, int, int]]:
        return (DataLoss, (self.stream, self.first, self.last))
