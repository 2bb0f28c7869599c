"""The messages of the founding of a meta group.

    message    format u8 = 1 │ one of the classes below as JSON, with its tag in "type"

Source of the bytes is another server: `decode` raises MalformedFounding and nothing else.
"""

from typing import TypeAlias

import msgspec
from msgspec import Struct

from natsd.jetstream.meta_group.founding_record import FORMAT, Ballot, Founded, Vote


class MalformedFounding(ValueError):
    """The bytes are no message of the founding that this version knows."""


class Prepare(Struct, frozen=True, tag="prepare"):
    """Answer no lower ballot, and say what you accepted last."""

    ballot: Ballot


class Promise(Struct, frozen=True, tag="promise"):
    """The answer to Prepare."""

    ballot: Ballot
    vote: Vote | None


class Accept(Struct, frozen=True, tag="accept"):
    """Accept this value in this ballot."""

    vote: Vote


class Accepted(Struct, frozen=True, tag="accepted"):
    """The answer to Accept."""

    ballot: Ballot


class Refused(Struct, frozen=True, tag="refused"):
    """The answer to a ballot that is lower than one that was promised."""

    ballot: Ballot
    promised: Ballot


class Chosen(Struct, frozen=True, tag="chosen"):
    """This is the meta group."""

    value: Founded


Message: TypeAlias = Prepare | Promise | Accept | Accepted | Refused | Chosen

_messages = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    """Return the bytes of a message."""
    return FORMAT + msgspec.json.encode(message)


def decode(data: bytes) -> Message:
    """Return the message. Raises MalformedFounding."""
    if data[:1] != FORMAT:
        raise MalformedFounding("unknown format")
    try:
        message: Message = _messages.decode(data[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFounding(str(error)) from error
    return message
