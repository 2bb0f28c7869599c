"""Durations in Go's notation: `2m`, `1h30m`, `1.5s`, `785µs`.

- `parse_duration` reads the texts that Go's `time.ParseDuration` reads, and plain numbers as
  seconds.
- `format_duration` writes durations like Go's `Duration.String`: the largest unit first, no leading
  zero units, a fraction only in the last unit, a single unit below one second.
"""

import re
from datetime import timedelta
from typing import Final

_UNIT_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # micro sign
    "μs": 1_000,  # Greek mu; Go accepts both characters
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION_NS_MAX = 2**63 - 1  # maximum of Go's time.Duration: 292 years


class DurationError(ValueError):
    """The value is not a duration; the text names the accepted notations."""


def parse_duration(value: object) -> timedelta:
    """Return a duration from a Go string (`2m`, `1h30m`), or from a number of seconds.

    A timedelta is returned as it is. Raises DurationError.
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        return timedelta(microseconds=parse_duration_ns(value) / 1_000)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DurationError("write seconds, or a text")
    try:
        return timedelta(seconds=value)
    except (OverflowError, ValueError) as error:
        raise DurationError(str(error)) from None


def parse_duration_ns(text: str) -> int:
    """Return the nanoseconds of a Go duration string. Raises DurationError."""
    sign = -1 if text.startswith("-") else 1
    unsigned = text[1:] if text[:1] in ("-", "+") else text
    if unsigned == "0":
        return 0
    total_ns, position = 0.0, 0
    for part in _PART.finditer(unsigned):
        if part.start() != position:
            break
        total_ns += float(part[1]) * _UNIT_NS[part[2]]
        position = part.end()
    if position == 0 or position != len(unsigned) or total_ns > _DURATION_NS_MAX:
        raise DurationError("units are ns, us, ms, s, m, h")
    return sign * round(total_ns)


def format_duration(duration: timedelta) -> str:
    """Return a duration as Go's `Duration.String` writes it."""
    return format_duration_ns(duration // timedelta(microseconds=1) * 1_000)


def format_duration_ns(duration_ns: int) -> str:
    """Return nanoseconds as Go's `Duration.String` writes them."""
    if duration_ns < 0:
        return "-" + format_duration_ns(-duration_ns)
    if duration_ns == 0:
        return "0s"
    if duration_ns < 1_000_000_000:
        if duration_ns < 1_000:
            return f"{duration_ns}ns"
        is_short = duration_ns < 1_000_000
        return _decimal(duration_ns, 3) + "µs" if is_short else _decimal(duration_ns, 6) + "ms"
    minutes, rest_ns = divmod(duration_ns, 60_000_000_000)
    text = _decimal(rest_ns, 9) + "s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{minutes}m{text}"
        if hours:
            text = f"{hours}h{text}"
    return text


def _decimal(amount: int, digits: int) -> str:
    """Return amount / 10**digits as an exact decimal number, without trailing zeros."""
    whole, rest = divmod(amount, 10**digits)
    return f"{whole}.{str(rest).zfill(digits)}".rstrip("0") if rest else str(whole)
