"""Points in time as the JetStream API writes them: nanoseconds since 1970 here, RFC 3339 there.

- Go's zero time, `0001-01-01T00:00:00Z`, is 0 here: no time at all.
- What is written is UTC with as many digits as needed, as Go's `RFC3339Nano`; what is read may have
  any offset. Times that 64 bits cannot hold become the nearest that they can (1677 to 2262).

Source: Go's time package, whose texts an unreadable time is answered with.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

ZERO_TIME: Final = "0001-01-01T00:00:00Z"
TIME_NS_MAX: Final = 2**63 - 1
TIME_NS_MIN: Final = -(2**63) + 1

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
_WHOLE: Final = re.compile("".join(pattern for _, pattern in _PARTS), re.ASCII)


class TimeError(ValueError):
    """Not a time; the text is Go's."""


def format_time(time_ns: int) -> str:
    """RFC 3339 with up to nine digits behind the second, UTC."""
    if time_ns == 0:
        return ZERO_TIME
    seconds, nanoseconds = divmod(time_ns, _SECOND_NS)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    if nanoseconds:
        text += f".{nanoseconds:09d}".rstrip("0")
    return text + "Z"


def parse_time(text: str) -> int:
    """Nanoseconds since 1970; raises TimeError."""
    found = _WHOLE.fullmatch(text)
    if found is None:
        raise TimeError(_why_not(text))
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    try:
        date = datetime(int(year), int(month), int(day), tzinfo=UTC)
        clock = timedelta(hours=_below(24, hour), minutes=_below(60, minute))
        since = date + clock + timedelta(seconds=_below(60, second)) - _EPOCH - _offset(zone)
    except (ValueError, OverflowError):
        raise TimeError(f'parsing time "{text}": {_out_of_range(month, day, hour)}') from None
    nanoseconds = int((fraction or "0")[:9].ljust(9, "0"))
    time_ns = (since.days * 86_400 + since.seconds) * _SECOND_NS + nanoseconds
    if time_ns == _ZERO_TIME_NS:
        return 0
    return min(max(time_ns, TIME_NS_MIN), TIME_NS_MAX)


def _below(limit: int, text: str) -> int:
    if int(text) >= limit:
        raise ValueError(text)
    return int(text)


def _offset(zone: str) -> timedelta:
    if zone == "Z":
        return timedelta()
    hours, minutes = int(zone[1:3]), int(zone[4:])
    if hours > 24 or minutes > 60:
        raise ValueError
    offset = timedelta(hours=hours, minutes=minutes)
    return -offset if zone[0] == "-" else offset


def _why_not(text: str) -> str:
    """Which part of the layout could not be read, and where."""
    position = 0
    for layout, pattern in _PARTS:
        found = re.compile(pattern, re.ASCII).match(text, position)
        if found is None:
            rest = text[position:]
            return f'parsing time "{text}" as "{_LAYOUT}": cannot parse "{rest}" as "{layout}"'
        position = found.end()
    return f'parsing time "{text}": extra text: "{text[position:]}"'


def _out_of_range(month: str, day: str, hour: str) -> str:
    if not 1 <= int(month) <= 12:
        return "month out of range"
    if not 1 <= int(day) <= 31:
        return "day out of range"
    if int(hour) > 23:
        return "hour out of range"
    return "day out of range"


_ZERO_TIME_NS: Final = (
    (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
) * _SECOND_NS
