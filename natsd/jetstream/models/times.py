"""Times in the JetStream API: nanoseconds since 1970 in Python, RFC 3339 in JSON (`wall_time`).

- Go's zero time, `0001-01-01T00:00:00Z`, is 0 in Python and means no time.
- Times that 64 bits cannot hold become the nearest possible (1677 to 2262).
"""

from typing import Final

from natsd.core.network import timestamp_text
from natsd.core.wall_time import parse_timestamp

ZERO_TIME: Final = "0001-01-01T00:00:00Z"
TIME_NS_MAX: Final = 2**63 - 1
TIME_NS_MIN: Final = -(2**63) + 1
LONGEST_NS: Final = 4_000_000_000_000_000_000
"""About 127 years: a longer wait never ends, and the sum with the present time still fits."""


def bounded_ns(duration_ns: int) -> int:
    """Limit a duration so that its sum with the present time still fits."""
    return min(duration_ns, LONGEST_NS)


def format_time(time_ns: int) -> str:
    """Return the time in RFC 3339, UTC, with up to nine digits after the second."""
    return timestamp_text(time_ns) if time_ns else ZERO_TIME


def parse_time(text: str) -> int:
    """Return the time as nanoseconds since 1970. Raises TimeError."""
    time_ns = parse_timestamp(text)
    if time_ns == _ZERO_TIME_NS:
        return 0
    return min(max(time_ns, TIME_NS_MIN), TIME_NS_MAX)


_ZERO_TIME_NS: Final = parse_timestamp(ZERO_TIME)
