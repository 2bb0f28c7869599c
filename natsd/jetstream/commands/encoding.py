"""The encoding of commands: the same for a log, for the wire, and for tests that replay them.

    ┌─────────┬──────┬────────┬────────┬────
    │ VERSION │ kind │ field  │ field  │ …        the fields in the order of the command's class
    └─────────┴──────┴────────┴────────┴────

    number    LEB128: seven bits a byte, the lowest first; the high bit says that a byte follows
    signed    the same of 2n, or of -2n - 1 for n below 0
    flag      a byte, 0 or 1
    bytes     their number, then the bytes; text is UTF-8 (surrogates escape other bytes)
    runs      their number, then for each the distance from the end of the one before, and its
              length less 1
    commands  their number, then each as bytes, without VERSION

Promise
- A command has one encoding, and an encoding is of one command: equal commands, equal bytes.
- `decode` returns a command, or raises UnknownCommand: for a version or a kind that it does not
  know, for bytes that are missing, left over, or not what `encode` writes.
- A kind's number is never given to another command, and its fields never change: a new form gets a
  new number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, get_type_hints

from natsd.jetstream.commands import commands as c
from natsd.jetstream.commands.commands import Command, Runs
from natsd.store.errors import DamagedEncoding

VERSION: Final = 1
NUMBER_BITS_MAX: Final = 64
SEQUENCE_MAX: Final = (1 << 63) - 1
DEPTH_MAX: Final = 1
"""A batch contains commands, but no batch."""


class UnknownCommand(DamagedEncoding):
    """These bytes are no command of this version; the text says why."""


class Input:
    """Encoded bytes, read from the front to the end."""

    def __init__(self, encoded: bytes, at: int, depth: int = 0) -> None:
        self.encoded = encoded
        self.at = at
        self.depth = depth  # of batches

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        if count > len(self.encoded) - self.at:
            raise UnknownCommand("a command is cut off")
        self.at += count
        return self.encoded[self.at - count : self.at]


def _put_number(out: bytearray, number: int) -> None:
    if not 0 <= number < 1 << NUMBER_BITS_MAX:
        raise ValueError(f"{number} is no unsigned number of {NUMBER_BITS_MAX} bits")
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _number(source: Input) -> int:
    number = shift = 0
    while True:
        [byte] = source.take(1)
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
        if shift >= NUMBER_BITS_MAX:
            raise UnknownCommand("a number in a command is too long")
    if number >> NUMBER_BITS_MAX or (byte == 0 and shift > 7):
        raise UnknownCommand("a number in a command is not encoded as it must be")
    return number


def _put_signed(out: bytearray, number: int) -> None:
    _put_number(out, 2 * number if number >= 0 else -2 * number - 1)


def _signed(source: Input) -> int:
    number = _number(source)
    return -(number + 1 >> 1) if number & 1 else number >> 1


def _put_flag(out: bytearray, flag: bool) -> None:
    out.append(flag)


def _flag(source: Input) -> bool:
    [flag] = source.take(1)
    if flag > 1:
        raise UnknownCommand("a flag in a command is neither 0 nor 1")
    return bool(flag)


def _put_bytes(out: bytearray, value: bytes) -> None:
    _put_number(out, len(value))
    out += value


def _bytes(source: Input) -> bytes:
    return source.take(_number(source))


def _put_text(out: bytearray, value: str) -> None:
    _put_bytes(out, value.encode("utf-8", "surrogateescape"))


def _text(source: Input) -> str:
    return _bytes(source).decode("utf-8", "surrogateescape")


def _put_runs(out: bytearray, runs: Runs) -> None:
    _put_number(out, len(runs))
    end = 0
    for first, last in runs:
        _put_number(out, first - end)
        _put_number(out, last - first)
        end = last


def _runs(source: Input) -> Runs:
    runs = []
    end = 0
    for _ in range(_number(source)):
        distance = _number(source)
        if distance < (2 if end else 1):
            raise UnknownCommand("the sequences in a command do not ascend in runs")
        first = end + distance
        end = first + _number(source)
        if end > SEQUENCE_MAX:
            raise UnknownCommand("a sequence in a command is too large")
        runs.append((first, end))
    return tuple(runs)


def _put_commands(out: bytearray, commands: tuple[Command, ...]) -> None:
    _put_number(out, len(commands))
    for command in commands:
        inner = bytearray()
        _put_command(inner, command)
        _put_bytes(out, bytes(inner))


def _commands(source: Input) -> tuple[Command, ...]:
    if source.depth == DEPTH_MAX:
        raise UnknownCommand("a batch in a batch")
    return tuple(_whole(Input(_bytes(source), 0, source.depth + 1)) for _ in range(_number(source)))


@dataclass(frozen=True, slots=True)
class Codec:
    """How a field is written and read."""

    put: Callable[[bytearray, Any], None]
    get: Callable[[Input], Any]


NUMBER: Final = Codec(_put_number, _number)
SIGNED: Final = Codec(_put_signed, _signed)
BY_TYPE: Final[dict[object, Codec]] = {
    bool: Codec(_put_flag, _flag),
    bytes: Codec(_put_bytes, _bytes),
    str: Codec(_put_text, _text),
    Runs: Codec(_put_runs, _runs),
    tuple[Command, ...]: Codec(_put_commands, _commands),
}

KINDS: Final[dict[int, type[Command]]] = {
    1: c.Publish,
    2: c.PublishBatch,
    3: c.Skip,
    4: c.Delete,
    5: c.PurgeMessages,
    6: c.PurgeAll,
    7: c.ExpireMessages,
    8: c.EnforceLimits,
    9: c.Release,
    10: c.RemoveDelayed,
    11: c.ReconfigureStream,
    12: c.Restore,
    32: c.CreateConsumer,
    33: c.UpdateConsumer,
    34: c.PauseConsumer,
    35: c.DeleteConsumer,
    36: c.ResetConsumer,
    37: c.ChangeTracker,
}


def _codecs(kind: type[Command]) -> tuple[tuple[str, Codec], ...]:
    """Return the codec of each field. Times (`…_ns`) are signed, other numbers are not."""
    types = get_type_hints(kind)
    return tuple(
        (name, BY_TYPE.get(types[name]) or _codec_of_number(name))
        for name in kind.__struct_fields__
    )


def _codec_of_number(name: str) -> Codec:
    return SIGNED if name.endswith("_ns") else NUMBER


_NUMBERS: Final = {kind: number for number, kind in KINDS.items()}
_FIELDS: Final = {kind: _codecs(kind) for kind in KINDS.values()}


def encode(command: Command) -> bytes:
    """Return the command's encoding."""
    out = bytearray((VERSION,))
    _put_command(out, command)
    return bytes(out)


def decode(encoded: bytes) -> Command:
    """Return the command. Raises UnknownCommand."""
    source = Input(encoded, 0)
    [version] = source.take(1)
    if version != VERSION:
        raise UnknownCommand(f"a command of version {version}; this server knows {VERSION}")
    return _whole(source)


def _put_command(out: bytearray, command: Command) -> None:
    kind = type(command)
    _put_number(out, _NUMBERS[kind])
    for name, codec in _FIELDS[kind]:
        codec.put(out, getattr(command, name))


def _whole(source: Input) -> Command:
    """Return the command that takes all the rest of `source`."""
    number = _number(source)
    kind = KINDS.get(number)
    if kind is None:
        raise UnknownCommand(f"a command of the unknown kind {number}")
    command = kind(**{name: codec.get(source) for name, codec in _FIELDS[kind]})
    if source.at != len(source.encoded):
        raise UnknownCommand("a command is followed by more bytes")
    return command
