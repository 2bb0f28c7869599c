"""When a message with a `Nats-Delay` header is to be seen: `10s`, or a time as RFC 3339 writes it.

Beyond nats-server.
"""

from natsd.config.durations import DurationError, parse_duration_ns
from natsd.jetstream.models.times import TIME_NS_MAX, TimeError, parse_time


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
