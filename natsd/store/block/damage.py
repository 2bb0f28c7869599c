"""Damage that recovery reports: bytes that should verify and do not."""

from typing import NamedTuple


def covers(first_sequence: int, last_sequence: int, sequence: int) -> bool:
    """Return whether a sequence is among the lost ones.

    A `first_sequence` of 0 means that none is lost; a `last_sequence` of 0 means that the end of
    the loss is unknown.
    """
    if not first_sequence or sequence < first_sequence:
        return False
    return not last_sequence or sequence <= last_sequence


class Damage(NamedTuple):
    """One damaged stretch of a block: logical offset and length in bytes, and the lost messages.

    The sequences from `first_sequence` to `last_sequence` are missing there. Both are 0 if no
    message is missing (for example if one of the two copies of a commit mark is damaged). Only
    `last_sequence` is 0 if nothing behind the damage tells where the loss ends.
    """

    offset: int
    length: int
    first_sequence: int
    last_sequence: int
    what: str

    def covers(self, sequence: int) -> bool:
        """Return whether a message of this sequence may have been lost here."""
        return covers(self.first_sequence, self.last_sequence, sequence)
