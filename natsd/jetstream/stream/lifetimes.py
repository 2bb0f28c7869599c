"""The lifetime of a message, as its `Nats-TTL` header gives it.

It is `never`, a Go duration of at least a second, or a number of seconds: ADR-43; nats-server's
`parseMessageTTL`.
"""

import re
from functools import lru_cache
from typing import Final

from natsd.core.durations import DurationError, parse_duration_ns

NEVER: Final = -1
_SECOND_NS: Final = 1_000_000_000
_DIGITS_MAX: Final = 19  # digits of a number of seconds
_LINE: Final = re.compile(rb"(?<=\r\n)Nats-TTL:.*?\r\n", re.DOTALL)


class InvalidLifetime(ValueError):
    """The text is not a lifetime."""


@lru_cache(maxsize=16)  # a stream's messages and markers have few different lifetimes
def parse_lifetime(text: bytes) -> int:
    """Return whole seconds; NEVER: it does not expire; 0: no lifetime. Raises InvalidLifetime."""
    if text.lower() == b"never":
        return NEVER
    # nats-server reads a bare 0 as a duration, which is too short
    if text.isdigit() and text != b"0":
        if len(text.lstrip(b"0")) > _DIGITS_MAX:
            raise InvalidLifetime
        return int(text.lstrip(b"0") or b"0")
    try:
        duration_ns = parse_duration_ns(text.decode())
    except (DurationError, UnicodeDecodeError):
        raise InvalidLifetime from None
    if duration_ns < _SECOND_NS:
        raise InvalidLifetime
    return duration_ns // _SECOND_NS


def with_lifetime(headers: bytes, seconds: int) -> bytes:
    """Return the header block with that lifetime at its end, instead of the one it has."""
    return _LINE.sub(b"", headers, 1)[:-2] + b"Nats-TTL: %d\r\n\r\n" % seconds
