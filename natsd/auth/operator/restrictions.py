"""From where and when a user may connect.

- `times` are parts of the day in the user's time zone, from `start` to `end`; one that ends before
  it starts passes midnight. The user is closed when the last part that holds now ends.

Source: nats-server's `validateSrc`, `validateTimesAt`, `validateTimeRangeAt` (server/jwt.go),
`convertAllowedConnectionTypes` (server/auth.go).
"""

import ipaddress
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from natsd.auth.jwt.claims import TimeRange, UserPermissions, parse_network, seconds_of_day
from natsd.config.auth_options import CONNECTION_TYPES

SECOND_NS: Final = 1_000_000_000


def may_come_from(permissions: UserPermissions, ip: str) -> bool:
    """Return whether the user may connect from an address."""
    if not permissions.src:
        return True
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return False
    return any(
        network is not None and address in network
        for network in map(parse_network, permissions.src)
    )


def may_use(permissions: UserPermissions, connection_type: str) -> bool:
    """Return whether the user may use a type of connection; unknown types in a list are no use."""
    allowed = permissions.allowed_connection_types
    return not allowed or connection_type in {
        each.upper() for each in allowed if each.upper() in CONNECTION_TYPES
    }


def ends_at_ns(permissions: UserPermissions, now_ns: int) -> int | None:
    """Return the Unix time at which the present part of the day ends.

    0: the user may connect at any time. None: it may not connect now.
    """
    if not permissions.times:
        return 0
    now = datetime.fromtimestamp(now_ns / SECOND_NS, UTC).astimezone(_zone(permissions))
    ends = [end for each in permissions.times if (end := _end(each, now)) is not None]
    return round(max(ends).timestamp() * SECOND_NS) if ends else None


def _zone(permissions: UserPermissions) -> tzinfo | None:
    """Return the time zone of the user; None: that of the server."""
    if not permissions.times_location:
        return None
    from zoneinfo import ZoneInfo

    return ZoneInfo(permissions.times_location)


def _end(part: TimeRange, now: datetime) -> datetime | None:
    """Return when a part of the day ends that holds now; None: it does not hold now."""
    start, end = _at(part.start, now), _at(part.end, now)
    if start is None or end is None:
        return None
    if start < now < end:
        return end
    if start > end:
        if now < end:
            return end
        if start < now:
            return _at(part.end, now + timedelta(days=1))
    return None


def _at(text: str, day: datetime) -> datetime | None:
    seconds = seconds_of_day(text)
    if seconds is None:
        return None
    hours, rest = divmod(seconds, 3600)
    return day.replace(hour=hours, minute=rest // 60, second=rest % 60, microsecond=0)
