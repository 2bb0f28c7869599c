"""How long a message is to live, as its `Nats-TTL` header says it.

Source: nats-server 2.14 reference 6.7: `never`, a Go duration of a second and more, or seconds.
"""

import re
from functools import lru_cache
from typing import Final

from natsd.config.durations import DurationError, parse_duration_ns

NEVER: Final = -1
_SECOND_NS: Final = 1_000_000_000
_DIGITS_MAX: Final = 19  # of seconds
_LINE: Final = re.compile(rb"(?<=\r\n)Nats-TTL:.*?\r\n", re.DOTALL)


class InvalidLifetime(ValueError):
    """Nothing that a lifetime can be."""


@lru_cache(maxsize=16)  # a stream's lifetimes, and its markers', are few different ones
def parse_lifetime(text: bytes) -> int:
    """Whole seconds; NEVER: it does not expire; 0: none was given. Raises InvalidLifetime."""
    if text.lower() == b"never":
        return NEVER
    if text.isdigit() and text != b"0":  # a bare 0 is read as a duration: it is too short
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
    """A header block that says so, at its end."""
    return _LINE.sub(b"", headers, 1)[:-2] + b"Nats-TTL: %d\r\n\r\n" % seconds
