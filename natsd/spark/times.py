"""Durations and times in the format of options: `1m30s`, `2026-11-21T13:00:00Z`, epoch ms."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime
from typing import Final

from natsd.core.durations import DurationError, parse_duration_ns
from natsd.core.wall_time import TimeError, parse_timestamp

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_duration_s(value: object) -> object:
    """Parse a Go duration ("1m30s") to seconds; other types are returned unchanged.

    Raises ValueError.
    """
    if not isinstance(value, str):
        return value
    with contextlib.suppress(DurationError):
        if (duration_ns := parse_duration_ns(value)) >= 0:
            return duration_ns / 1e9
    raise ValueError('is no duration: write it as "200ms", "5s" or "1m30s"')


def parse_time_ns(value: object) -> object:
    """Parse RFC 3339, or milliseconds since the epoch, to nanoseconds since the epoch.

    Values that are not text are returned unchanged. Raises ValueError.
    """
    if not isinstance(value, str):
        return value
    if re.fullmatch(r"-?\d+", value):
        return int(value) * 1_000_000
    try:
        return parse_timestamp(value.upper().replace(" ", "T", 1))
    except TimeError:
        raise ValueError(
            'is no time: write it as "2026-11-21T13:00:00Z", or in milliseconds since the epoch'
        ) from None


def time_us(moment: datetime) -> int:
    """Return microseconds since the epoch; a time without a time zone is taken as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
