"""Times in the JetStream API: nanoseconds since 1970 in Python, RFC 3339 in JSON.

- Go's zero time, `0001-01-01T00:00:00Z`, is 0 in Python and means no time.
- Written times are UTC with as many digits as needed, like Go's `RFC3339Nano`; times that are read
  may have any offset. Times that 64 bits cannot hold become the nearest possible (1677 to 2262).

Source: Go's time package; errors of unreadable times have its texts.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

ZERO_TIME: Final = "0001-01-01T00:00:00Z"
TIME_NS_MAX: Final = 2**63 - 1
TIME_NS_MIN: Final = -(2**63) + 1
LONGEST_NS: Final = 4_000_000_000_000_000_000
"""About 127 years: a longer wait never ends, and the sum with the present time still fits."""

_SECOND_NS: Final = 1_000_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"
_PARTS: Final = (
    ("2006", r"(\d{4})"),
    ("-", "-"),
    ("01", r"(\d{2})"),
    ("-", "-"),
    ("02", r"(\d{2})"),
    ("T", "T"),
    ("15", r"(\d{2})"),
    (":", ":"),
    ("04", r"(\d{2})"),
    (":", ":"),
    ("05", r"(\d{2})(?:[.,](\d+))?"),
    ("Z07:00", r"(Z|[+-]\d{2}:\d{2})"),
)
_NAMES: Final = ("month", "day", "hour", "minute", "second")
_WHOLE: Final = re.compile("".join(pattern for _, pattern in _PARTS), re.ASCII)


class TimeError(ValueError):
    """The text is not a time; the message is Go's."""


def bounded_ns(duration_ns: int) -> int:
    """Limit a duration so that its sum with the present time still fits."""
    return min(duration_ns, LONGEST_NS)


def format_time(time_ns: int) -> str:
    """Return the time in RFC 3339, UTC, with up to nine digits after the second."""
    if time_ns == 0:
        return ZERO_TIME
    seconds, nanoseconds = divmod(time_ns, _SECOND_NS)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    if nanoseconds:
        text += f".{nanoseconds:09d}".rstrip("0")
    return text + "Z"


def parse_time(text: str) -> int:
    """Return the time as nanoseconds since 1970. Raises TimeError."""
    found = _WHOLE.fullmatch(text)
    if found is None:
        raise TimeError(_why_not(text))
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    fraction, zone = found.groups()[6:]
    within = (month, 1, 12), (day, 1, 31), (hour, 0, 23), (minute, 0, 59), (second, 0, 59)
    for (number, least, most), name in zip(within, _NAMES, strict=True):
        if not least <= number <= most:
            raise TimeError(f'parsing time "{text}": {name} out of range')
    try:
        date = datetime(max(year, 1), month, day, tzinfo=UTC) - _EPOCH
    except ValueError:
        raise TimeError(f'parsing time "{text}": day out of range') from None
    seconds = date.days * 86_400 + hour * 3_600 + minute * 60 + second - _offset_s(zone)
    time_ns = seconds * _SECOND_NS + int((fraction or "0")[:9].ljust(9, "0"))
    if time_ns == _ZERO_TIME_NS:
        return 0
    return min(max(time_ns, TIME_NS_MIN), TIME_NS_MAX)


def _offset_s(zone: str) -> int:
    if zone == "Z":
        return 0
    offset_s = int(zone[1:3]) * 3_600 + int(zone[4:]) * 60
    return -offset_s if zone[0] == "-" else offset_s


def _why_not(text: str) -> str:
    """Return which part of the layout could not be read, and where."""
    position = 0
    for layout, pattern in _PARTS:
        found = re.compile(pattern, re.ASCII).match(text, position)
        if found is None:
            rest = text[position:]
            return f'parsing time "{text}" as "{_LAYOUT}": cannot parse "{rest}" as "{layout}"'
        position = found.end()
    return f'parsing time "{text}": extra text: "{text[position:]}"'


_ZERO_TIME_NS: Final = (
    (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
) * _SECOND_NS
