"""The range of sequences of one stream that a task reads, and which of its messages are wanted.

A range is plain and picklable: the driver creates it, an executor reads it. Importing this module
is cheap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NO_END: Final = (1 << 63) - 1
"""Last sequence of a range without an end: the range grows with its stream."""


@dataclass(frozen=True)
class RangeRequest:
    """Messages `first_sequence` to `last_sequence`, both inclusive, in sequence order.

    - `subjects`: subject filters, with or without wildcards; empty: all subjects.
    - `start_time_ns` (inclusive) and `end_time_ns` (exclusive), in ns since the epoch: older and
      younger messages are left out.
    - `last_per_subject`: only the last message of each subject within the range is read. A delete
      marker of a key-value store counts as a message.
    - `fail_on_data_loss`: raise DataLoss if the stream begins after `first_sequence`, instead of
      skipping the gap. Sequences that are missing after the stream's beginning are holes, no data
      loss.
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
        """Whether the range can hold no message."""
        return self.last_sequence < self.first_sequence


class DataLoss(Exception):
    """Messages of the range were purged, expired or discarded before they were read."""

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
