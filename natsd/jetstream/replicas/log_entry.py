"""The entries of a stream's RAFT log: the commands that its leader made in one turn.

    ┌──────────────┬────────────┬─────────┬────
    │ commands u32 │ length u32 │ command │ …        numbers are little-endian
    └──────────────┴────────────┴─────────┴────

A command is as commands/encoding.py encodes it; `publishing.join_commands` makes an entry of some.
The number comes first, so that a leader, which has applied the commands, counts them without
reading them.
"""

import struct

from natsd.jetstream.commands.commands import Command
from natsd.jetstream.commands.encoding import decode

NUMBER = struct.Struct("<I")
FIRST = NUMBER.size
"""Offset of the first command."""


def count(entry: bytes) -> int:
    """Return the number of commands in an entry."""
    number: int = NUMBER.unpack_from(entry)[0]
    return number


def command_at(entry: bytes, at: int) -> tuple[Command, int]:
    """Return the command at an offset, and the offset behind it. Raises UnknownCommand."""
    begin = at + NUMBER.size
    end = begin + NUMBER.unpack_from(entry, at)[0]
    return decode(entry[begin:end]), end
