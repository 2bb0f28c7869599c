from typing import TypeAlias

from natsd.spark.wire.frames import Intake

Column: TypeAlias = tuple[object, object, object, int]
"""Offsets, data, validity (each with the buffer protocol, or None), first bit of the validity."""

Headers: TypeAlias = tuple[object, object, int, Column, object, object, int, Column]
"""Of the maps: offsets, validity, its first bit, names; of the lists (None: each name has one
value): offsets, validity, its first bit; the values."""

class RowProblem(Exception):
    """A row that no server could store: its index in the batch, and why."""

    row: int
    def __init__(self, row: int, reason: str) -> None: ...

class Rows:
    """The columns of one Arrow batch, read where they lie."""

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
        """That of these rows' content, in their order, chained to the digest before them."""

    def check(self, max_payload: int) -> None:
        """Raises RowProblem for the first row that cannot be sent."""

    def first_outside(self, patterns: list[bytes], first: int) -> int:
        """The first row, from `first` on, whose subject no pattern matches; else `count`."""

class FoundIds:
    """Message ids that are stored already."""

    count: int
    highest_row: int
    stored_below: int
    """Rows below it count as found."""
    def __init__(self) -> None: ...
    def add(self, message_id: bytes) -> None: ...
    def __contains__(self, message_id: bytes) -> bool: ...
    def take(self, count: int, headers: Headers, prefix: bytes, by_row: bool) -> None:
        """Of each message its id, if it begins with the prefix; kept without it."""

class SendWindow(Intake):
    """Rows in flight, from the lowest that is not done; takes the server's answers."""

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
        """Its acknowledgements count from now on."""

    def last_sequences(self) -> dict[bytes, int]:
        """By target: the highest sequence of a row below `first`; 0: there is none."""

    def connected(self, inbox: bytes) -> None:
        """Answers come to `inbox<row>` now; what was in flight is to be sent again."""

    def fill(self, rows: Rows, base: int, last: int, found: FoundIds | None = None) -> None:
        """Put rows from `next` on, up to `last`, while there is room; rows[0] is row `base`."""

    def resend(self, rows: Rows, base: int) -> None:
        """Put those of these rows again that were refused, while there is room."""

    def acknowledge(self, row: int, stream: bytes, sequence: int, duplicate: bool) -> None:
        """A row counted as refused is stored after all."""

    def refused_rows(self) -> list[int]: ...
    def take_refusals(self) -> list[tuple[int, bytes, bytes]]:
        """Row, headers and data of each answer that acknowledges nothing, since the last call."""

    def outgoing(self) -> memoryview:
        """What waits for the socket, until the next call of anything here."""

    def sent_all(self) -> None:
        """It went, whole: frames are never cut by what others send."""
