"""The entries of a stream's RAFT log: the commands that its leader made in one turn.

    ┌──────────────┬────────────┬─────────┬────
    │ commands u32 │ length u32 │ command │ …        numbers are little-endian
    └──────────────┴────────────┴─────────┴────

A command is as commands/encoding.py encodes it. The number comes first, so that a leader, which
has applied the commands already, counts them without reading them.
"""

import struct
from collections.abc import Sequence

from natsd.jetstream.commands.commands import Command
from natsd.jetstream.commands.encoding import decode

NUMBER = struct.Struct("<I")
FIRST = NUMBER.size
"""Offset of the first command."""


def join(commands: Sequence[bytes]) -> bytes:
    """Return the entry of these encoded commands."""
    parts = [NUMBER.pack(len(commands))]
    for command in commands:
        parts += (NUMBER.pack(len(command)), command)
    return b"".join(parts)


def count(entry: bytes) -> int:
    """Return the number of commands in an entry."""
    number: int = NUMBER.unpack_from(entry)[0]
    return number


def command_at(entry: bytes, at: int) -> tuple[Command, int]:
    """Return the command at an offset, and the offset behind it. Raises UnknownCommand."""
    begin = at + NUMBER.size
    end = begin + NUMBER.unpack_from(entry, at)[0]
    return decode(entry[begin:end]), end
