"""From where, when and how a user may connect (nats-server: validateSrc, validateTimesAt)."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from natsd.auth.jwt.claims import TimeRange, UserPermissions
from natsd.auth.operator.restrictions import ends_at_ns, may_come_from, may_use


@pytest.mark.parametrize(
    ("networks", "ip", "expected"),
    [
        ((), "10.0.0.1", True),
        (("10.0.0.0/8",), "10.9.9.9", True),
        (("10.0.0.0/8",), "11.0.0.1", False),
        (("10.0.0.0/8", "11.0.0.1/32"), "11.0.0.1", True),
        (("2001:db8::/32",), "2001:db8::5", True),
        (("2001:db8::/32",), "10.0.0.1", False),
        (("10.0.0.0/8",), "", False),
        (("10.0.0.0/8",), "host", False),
    ],
)
def test_networks(networks: tuple[str, ...], ip: str, expected: bool) -> None:
    assert may_come_from(UserPermissions(src=networks), ip) is expected


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ((), True),
        (("STANDARD",), True),
        (("standard", "MQTT"), True),
        (("MQTT",), False),
        (("FUTURE",), False),
        (("FUTURE", "STANDARD"), True),
    ],
)
def test_connection_types(types: tuple[str, ...], expected: bool) -> None:
    assert may_use(UserPermissions(allowed_connection_types=types), "STANDARD") is expected


def at(text: str, zone: str = "Europe/Berlin") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1e9)


def ends(now: str, *parts: tuple[str, str], zone: str = "Europe/Berlin") -> int | None:
    times = tuple(TimeRange(*part) for part in parts)
    return ends_at_ns(UserPermissions(times=times, times_location=zone), at(now))


@pytest.mark.parametrize(
    ("now", "parts", "expected"),
    [
        ("2026-03-01 13:00:00", [], 0),
        ("2026-03-01 13:00:00", [("11:00:00", "22:00:00")], "2026-03-01 22:00:00"),
        ("2026-03-01 10:59:59", [("11:00:00", "22:00:00")], None),
        ("2026-03-01 22:00:00", [("11:00:00", "22:00:00")], None),
        ("2026-03-01 05:00:00", [("22:00:00", "06:00:00")], "2026-03-01 06:00:00"),
        ("2026-03-01 23:30:00", [("22:00:00", "06:00:00")], "2026-03-02 06:00:00"),
        ("2026-03-01 12:00:00", [("22:00:00", "06:00:00")], None),
        (
            "2026-03-01 12:00:00",
            [("11:00:00", "13:00:00"), ("11:30:00", "14:00:00"), ("1:00:00", "2:00:00")],
            "2026-03-01 14:00:00",
        ),
        ("2026-03-28 23:30:00", [("23:00:00", "06:00:00")], "2026-03-29 06:00:00"),
    ],
)
def test_times(now: str, parts: list[tuple[str, str]], expected: str | int | None) -> None:
    found = ends(now, *parts)
    assert found == (at(expected) if isinstance(expected, str) else expected)


def test_times_are_those_of_the_user() -> None:
    noon_in_berlin = ends("2026-03-01 12:00:00", ("11:00:00", "13:00:00"), zone="Asia/Tokyo")
    assert noon_in_berlin is None
