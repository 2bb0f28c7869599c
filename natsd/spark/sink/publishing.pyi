from typing import TypeAlias

from natsd.spark.wire.frames import FrameHandler

Column: TypeAlias = tuple[object, object, object, int]
"""A column of strings: offsets, data, validity (each a buffer, or None), and the first bit of the
validity."""

Headers: TypeAlias = tuple[object, object, int, Column, object, object, int, Column]
"""A column of headers: offsets, validity and its first bit of the maps; their names; offsets,
validity and its first bit of the lists (offsets None: each name has one value); the values."""

class RowProblem(Exception):
    """A row that no server could store; `row` is its index in the batch."""

    row: int
    def __init__(self, row: int, reason: str) -> None: ...

class RowBatch:
    """The columns of one Arrow batch, read in place."""

    count: int
    def __init__(
        self,
        count: int,
        subjects: Column,
        data: Column,
        headers: Headers | None = None,
        ids: Column | None = None,
    ) -> None: ...
    def subject(self, row: int) -> str: ...
    def digest(self, first: int, last: int, digest: int) -> int:
        """Return the digest of rows `first` to `last` (exclusive), chained to the given digest."""

    def check(self, max_payload: int) -> None:
        """Raise RowProblem for the first row that cannot be sent."""

    def first_outside(self, patterns: list[bytes], first: int) -> int:
        """Return the first row, from `first` on, whose subject no pattern matches; else `count`."""

class FoundIds:
    """Set of message ids that are stored already."""

    count: int
    highest_row: int
    stored_below: int
    """Rows below this number count as found."""
    def __init__(self) -> None: ...
    def add(self, message_id: bytes) -> None: ...
    def __contains__(self, message_id: bytes) -> bool: ...
    def take(self, count: int, headers: Headers, prefix: bytes, by_row: bool) -> None:
        """Add the ids of the messages that begin with the prefix, without the prefix."""

class SendWindow(FrameHandler):
    """Pending rows, from the lowest that is not done; takes the server's answers."""

    first: int
    next: int
    in_flight: int
    in_flight_bytes: int
    sent: int
    found: int
    refused: int
    duplicates: int
    acknowledged: int
    wake_below: int
    def __init__(
        self, id_prefix: bytes, first: int = 0, *, max_rows: int, max_bytes: int
    ) -> None: ...
    def add_target(self, stream: bytes) -> None:
        """Accept acknowledgements of this stream. Raises ValueError beyond 255 streams."""

    def last_sequences(self) -> dict[bytes, int]:
        """Return by target the highest sequence of a row below `first`; 0: there is none."""

    def connected(self, inbox: bytes) -> None:
        """Expect answers at `inbox<row>`, and mark all pending rows as unsent."""

    def fill(self, rows: RowBatch, base: int, last: int, found: FoundIds | None = None) -> None:
        """Write frames of rows from `next` to `last` while there is room; rows[0] is row `base`.

        Rows that are in `found` become done instead.
        """

    @property
    def is_full(self) -> bool:
        """Whether no further row can be sent before an answer."""

    def resend(self, rows: RowBatch, base: int) -> None:
        """Write frames of the refused rows among these while there is room."""

    def acknowledge(self, row: int, stream: bytes, sequence: int, duplicate: bool) -> None:
        """Mark a row that counted as refused as stored."""

    def refused_rows(self) -> list[int]: ...
    def take_refusals(self) -> list[tuple[int, bytes, bytes]]:
        """Return row, headers and data of each refusal since the last call."""

    def outgoing(self) -> memoryview:
        """Return the frames to be sent, valid until the next call of any method."""

    def sent_all(self) -> None:
        """Clear the frames after all of them were sent."""
