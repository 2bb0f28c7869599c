"""What the members of a group send to each other."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """A message from one member of a group to another."""

    sender: int
    receiver: int
    term: int
