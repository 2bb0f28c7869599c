"""When a message with a `Nats-Delay` header is to be seen: `10s`, or a time as RFC 3339 writes it.
And what it was acknowledged as: `Nats-Delayed: <stream> <sequence>`.

Beyond nats-server.
"""

from typing import Final

from natsd.config.durations import DurationError, parse_duration_ns
from natsd.jetstream.headers import DELAYED, header_value
from natsd.jetstream.models.times import TIME_NS_MAX, TimeError, parse_time

_DIGITS_MAX: Final = 19  # of a sequence


class InvalidDelay(ValueError):
    """Neither a duration that is longer than nothing, nor a time."""


def due_ns(text: bytes, time_ns: int) -> int:
    """For a message that was published at `time_ns`; perhaps before that. Raises InvalidDelay."""
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
    """What an entry, or the copy of one of this stream, was acknowledged as; 0: neither."""
    value = header_value(headers or b"", DELAYED) or b""
    name, _, sequence = value.rpartition(b" ")
    if name != stream.encode("utf-8", "surrogateescape"):
        return 0
    return int(sequence) if sequence.isdigit() and len(sequence) <= _DIGITS_MAX else 0
