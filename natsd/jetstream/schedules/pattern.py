"""Patterns of the `Nats-Schedule` header: once, at an interval, or by the calendar.

    @at 2030-01-01T12:00:00Z      once
    @every 1m30s                  at least 1 s; counted from the last whole second
    @hourly @daily @midnight @weekly @monthly @yearly @annually
    0 30 8 * * mon-fri            six fields (cron.py), in UTC or in Nats-Schedule-Time-Zone
                                  ("Local": the zone of the server)

Promise
- A repeating pattern has a next time after any time; times before now are skipped.
- Times are nanoseconds since 1970; no clock is read.

Source: ADR-51, nats-server's `parseMsgSchedule`; results were compared with a running nats-server
2.14.
"""

import functools
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from natsd.core.durations import DurationError, parse_duration_ns
from natsd.core.wall_time import TimeError, timestamp
from natsd.jetstream.models.times import TIME_NS_MAX, parse_time
from natsd.jetstream.schedules.cron import Cron, InvalidCron, parse_cron

_SECOND_NS: Final = 1_000_000_000
_ONCE: Final = "@at "
_INTERVAL: Final = "@every "
_ZERO_YEAR: Final = "0001-"
_LOCAL: Final = "Local"
_SYSTEM_ZONE: Final = Path("/etc/localtime")
_PREDEFINED: Final = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}


class InvalidPattern(ValueError):
    """The text is not a valid pattern."""


class InvalidTimeZone(ValueError):
    """The name is not a time zone of the tz database."""


@dataclass(frozen=True, slots=True)
class Once:
    """A pattern that fires once."""

    at_ns: int
    repeats: ClassVar = False

    def next_ns(self, _after_ns: int, _now_ns: int) -> int:
        """Return the time of the pattern; the arguments are ignored."""
        return self.at_ns


@dataclass(frozen=True, slots=True)
class Interval:
    """A pattern that fires at a fixed interval."""

    every_ns: int
    repeats: ClassVar = True

    def next_ns(self, after_ns: int, now_ns: int) -> int:
        """Return the next time after `after_ns`, or after `now_ns` if that time is past."""
        next_ns = _whole_second(after_ns) + self.every_ns
        if next_ns < now_ns:
            next_ns = _whole_second(now_ns) + self.every_ns
        return min(next_ns, TIME_NS_MAX)


@dataclass(frozen=True, slots=True)
class Calendar:
    """A pattern that fires by the calendar."""

    cron: Cron
    repeats: ClassVar = True

    def next_ns(self, after_ns: int, now_ns: int) -> int:
        """Return the next time after `after_ns` that is not past at `now_ns`.

        Raises InvalidPattern.
        """
        try:
            next_ns = self.cron.next_ns(after_ns)
            if next_ns < now_ns:
                next_ns = self.cron.next_ns(_whole_second(now_ns))
        except InvalidCron as error:
            raise InvalidPattern(str(error)) from None
        return next_ns


Pattern = Once | Interval | Calendar


def format_next(pattern: Pattern, next_ns: int) -> str:
    """Return the time for `Nats-Schedule-Next`: RFC 3339, in the pattern's time zone."""
    zone = pattern.cron.zone if isinstance(pattern, Calendar) else None
    if zone is None:
        return timestamp(next_ns)
    text = datetime.fromtimestamp(next_ns // _SECOND_NS, zone).isoformat()
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text


def parse_pattern(text: bytes, zone: bytes | None = None) -> Pattern | None:
    """Parse the headers' values; None: they contain no schedule.

    `zone` None means that the header is missing. Raises InvalidTimeZone, InvalidPattern.
    """
    return _parse(
        text.decode("utf-8", "surrogateescape"),
        None if zone is None else zone.decode("utf-8", "surrogateescape"),
    )


@functools.lru_cache(maxsize=1024)  # the same patterns repeat
def _parse(text: str, zone: str | None) -> Pattern | None:
    found = None if zone is None else _time_zone(zone)
    if not text:
        return None
    if text.startswith((_ONCE, _INTERVAL)):
        if found is not None:
            raise InvalidPattern("a time zone goes with the calendar only")
        return _parse_once(text) if text.startswith(_ONCE) else _parse_interval(text)
    try:
        return Calendar(parse_cron(_PREDEFINED.get(text, text), found))
    except InvalidCron as error:
        raise InvalidPattern(str(error)) from None


def _parse_once(text: str) -> Once | None:
    text = text.removeprefix(_ONCE)
    try:
        at_ns = parse_time(text)
    except TimeError as error:
        raise InvalidPattern(str(error)) from None
    if at_ns == 0 and text.startswith(_ZERO_YEAR):  # Go's zero time
        return None
    return Once(at_ns)


def _parse_interval(text: str) -> Interval:
    try:
        every_ns = parse_duration_ns(text.removeprefix(_INTERVAL))
    except DurationError as error:
        raise InvalidPattern(str(error)) from None
    if every_ns < _SECOND_NS:
        raise InvalidPattern("an interval is a second or more")
    return Interval(every_ns)


def _time_zone(name: str) -> ZoneInfo:
    try:
        return _local_time_zone() if name == _LOCAL else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidTimeZone(name) from None


def _local_time_zone() -> ZoneInfo:
    """Return the server's time zone as Go finds it: `TZ`, else the system's, else UTC."""
    name = os.environ.get("TZ")
    try:
        if name is not None:
            return ZoneInfo(name.removeprefix(":") or "UTC")
        with _SYSTEM_ZONE.open("rb") as file:
            return ZoneInfo.from_file(file, key=_LOCAL)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def _whole_second(time_ns: int) -> int:
    """Round to the nearest second; halves go up."""
    return (time_ns + _SECOND_NS // 2) // _SECOND_NS * _SECOND_NS
