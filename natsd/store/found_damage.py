"""Damage of a stream's files, as it is reported and kept in index.db."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from natsd.store.damage import covers
from natsd.store.errors import DamagedEncoding


@dataclass(frozen=True, slots=True)
class FoundDamage:
    """Bytes of a file that should verify and do not; `str` is one line about it.

    Messages `first_sequence` to `last_sequence` are lost; both are 0 where none is.
    """

    path: Path
    offset: int
    length: int
    first_sequence: int
    last_sequence: int
    what: str

    def covers(self, sequence: int) -> bool:
        """Whether a message of that sequence may have been here."""
        return covers(self.first_sequence, self.last_sequence, sequence)

    def __str__(self) -> str:
        where = f"{self.path}: {self.what} at byte {self.offset} ({self.length} bytes)"
        if not self.first_sequence:
            return where
        if not self.last_sequence:
            return f"{where}, messages from {self.first_sequence} on"
        if self.last_sequence == self.first_sequence:
            return f"{where}, message {self.first_sequence}"
        return f"{where}, messages {self.first_sequence} to {self.last_sequence}"


class _Row(NamedTuple):
    name: str
    offset: int
    length: int
    first_sequence: int
    last_sequence: int
    what: str


def encode_damage(found: list[FoundDamage]) -> bytes:
    """For `decode_damage`; files by their names only."""
    rows = [
        (
            each.path.name,
            each.offset,
            each.length,
            each.first_sequence,
            each.last_sequence,
            each.what,
        )
        for each in found
    ]
    return msgspec.json.encode(rows)


def decode_damage(data: bytes, directory: Path) -> list[FoundDamage]:
    """Raises DamagedEncoding."""
    try:
        rows = msgspec.json.decode(data, type=list[_Row])
    except msgspec.DecodeError as error:
        raise DamagedEncoding(str(error)) from error
    return [FoundDamage(directory / row.name, *row[1:]) for row in rows]
