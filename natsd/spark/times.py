"""Durations and times in the format of options: `1m30s`, `2026-11-21T13:00:00Z`, epoch ms."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

SECOND_NS: Final = 1_000_000_000
_UNITS_S: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_RFC3339: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_duration_s(value: object) -> object:
    """Parse a Go duration ("1m30s") to seconds; other types are returned unchanged.

    Raises ValueError.
    """
    if not isinstance(value, str):
        return value
    parts = _PART.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise ValueError('is no duration: write it as "200ms", "5s" or "1m30s"')
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)


def parse_time_ns(value: object) -> object:
    """Parse RFC 3339, or milliseconds since the epoch, to nanoseconds since the epoch.

    Values that are not text are returned unchanged. Raises ValueError.
    """
    if not isinstance(value, str):
        return value
    if re.fullmatch(r"-?\d+", value):
        return int(value) * 1_000_000
    match = _RFC3339.fullmatch(value)
    if match is None:
        raise ValueError(
            'is no time: write it as "2026-11-21T13:00:00Z", or in milliseconds since the epoch'
        )
    day, time, fraction, zone = match.groups()
    moment = datetime.fromisoformat(f"{day}T{time}{'+00:00' if zone in 'Zz' else zone}")
    whole = moment - _EPOCH
    return (whole.days * 86_400 + whole.seconds) * SECOND_NS + int((fraction or "0").ljust(9, "0"))


def time_us(moment: datetime) -> int:
    """Return microseconds since the epoch; a time without a time zone is taken as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def rfc3339(time_ns: int) -> str:
    """Return a time in ns since the epoch as RFC 3339, as the JetStream API expects it."""
    seconds, rest = divmod(time_ns, SECOND_NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"
