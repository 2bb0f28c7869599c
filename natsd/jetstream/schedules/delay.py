"""Headers of delayed messages.

`Nats-Delay` says when the message is to be stored as a visible message: a duration (`10s`) or a
time in RFC 3339. `Nats-Delayed: <stream> <sequence>` holds the sequence of its acknowledgement.

nats-server has neither; see docs/delayed-messages.md.
"""

from typing import Final

from natsd.core.durations import DurationError, parse_duration_ns
from natsd.core.wall_time import TimeError
from natsd.jetstream.headers import DELAYED, header_value
from natsd.jetstream.models.times import TIME_NS_MAX, parse_time

_DIGITS_MAX: Final = 19  # of a sequence


class InvalidDelay(ValueError):
    """The value is neither a positive duration nor a time."""


def due_ns(text: bytes, time_ns: int) -> int:
    """Return the due time (wall clock, ns) of a message published at `time_ns`.

    It may be in the past. Raises InvalidDelay.
    """
    try:
        wanted = text.decode("ascii")
    except UnicodeDecodeError:
        raise InvalidDelay from None
    try:
        delay_ns = parse_duration_ns(wanted)
    except DurationError:
        try:
            return parse_time(wanted)
        except TimeError:
            raise InvalidDelay from None
    if delay_ns <= 0:
        raise InvalidDelay
    return min(time_ns + delay_ns, TIME_NS_MAX)


def delayed_sequence(stream: str, headers: bytes | None) -> int:
    """Return the acknowledged sequence of this stream's entry, or of its copy; 0: neither."""
    value = header_value(headers or b"", DELAYED) or b""
    name, _, sequence = value.rpartition(b" ")
    if name != stream.encode("utf-8", "surrogateescape"):
        return 0
    return int(sequence) if sequence.isdigit() and len(sequence) <= _DIGITS_MAX else 0
