"""Points in time as text, in RFC 3339: nanoseconds since 1970 in Python.

- Written times are UTC with as many decimals as needed, like Go's `RFC3339Nano`; times that are
  read may have any offset.
- `timestamp.pxd` does the same for each message, without Python objects.

Source: Go's time package; errors of unreadable times have its texts.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

SECOND_NS: Final = 1_000_000_000
DAYS_KEPT_MAX: Final = 1024
"""Days whose text is kept: lists of connections and streams have few."""

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


def timestamp(wall_ns: int) -> str:
    """Return Unix nanoseconds as RFC 3339 in UTC: `2026-11-21T00:26:11.907410132Z`.

    The seconds have as many decimals as needed, without trailing zeros.
    """
    seconds, rest_ns = divmod(wall_ns, SECOND_NS)
    days, seconds = divmod(seconds, 86_400)
    minutes, seconds = divmod(seconds, 60)
    text = f"{_date(days)}T{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
    return f"{text}.{rest_ns:09}".rstrip("0") + "Z" if rest_ns else text + "Z"


@lru_cache(DAYS_KEPT_MAX)
def _date(days: int) -> str:
    return (_EPOCH + timedelta(days)).isoformat()[:10]


def parse_timestamp(text: str) -> int:
    """Return the time as nanoseconds since 1970, of any size. Raises TimeError."""
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
    return seconds * SECOND_NS + int((fraction or "0")[:9].ljust(9, "0"))


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
