"""What recovery says about bytes that should verify and do not."""

from typing import NamedTuple


def covers(first_sequence: int, last_sequence: int, sequence: int) -> bool:
    """Whether a sequence is among those missing. 0 as the first: none is; as the last: no end is
    known."""
    if not first_sequence or sequence < first_sequence:
        return False
    return not last_sequence or sequence <= last_sequence


class Damage(NamedTuple):
    """One damaged stretch of a block: logical offset and length, and the messages it may have cost.

    `first_sequence` to `last_sequence` are the sequences that are missing there; both are 0 where
    no message is missing (a commit mark, say, of which there are two), and `last_sequence` alone
    where nothing after the damage tells.
    """

    offset: int
    length: int
    first_sequence: int
    last_sequence: int
    what: str

    def covers(self, sequence: int) -> bool:
        """Whether a message of that sequence may have been here."""
        return covers(self.first_sequence, self.last_sequence, sequence)
