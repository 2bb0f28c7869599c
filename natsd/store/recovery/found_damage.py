"""Damage of a stream's files, as it is reported and kept in index.db."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from natsd.store.block.damage import covers
from natsd.store.errors import DamagedEncoding


@dataclass(frozen=True, slots=True)
class FoundDamage:
    """Bytes of a file that should verify and do not; `str` of it is one line for the log.

    Offset and length are in bytes. The messages from `first_sequence` to `last_sequence` are lost;
    both are 0 if none is lost, and only `last_sequence` is 0 if the end of the loss is unknown.
    """

    path: Path
    offset: int
    length: int
    first_sequence: int
    last_sequence: int
    what: str

    def covers(self, sequence: int) -> bool:
        """Return whether a message of this sequence may have been lost here."""
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
    """Encode damage for `decode_damage`; only the names of the files are kept."""
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
    """Decode the result of `encode_damage` for files in `directory`; raise DamagedEncoding."""
    try:
        rows = msgspec.json.decode(data, type=list[_Row])
    except msgspec.DecodeError as error:
        raise DamagedEncoding(str(error)) from error
    return [FoundDamage(directory / row.name, *row[1:]) for row in rows]
