"""The patterns of `Nats-Schedule` (ADR-51)."""

from __future__ import annotations

import pytest

from natsd.jetstream.models.times import format_time, parse_time
from natsd.jetstream.schedules.pattern import (
    InvalidPattern,
    InvalidTimeZone,
    _parse,
    format_next,
    parse_pattern,
)

AFTER = parse_time("2026-05-04T03:02:01.6Z")  # a Monday

NEXT = [
    (b"@at 2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
    (b"@at 2026-01-01T00:00:00.5+02:00", "2025-12-31T22:00:00.5Z"),
    (b"@every 1s", "2026-05-04T03:02:03Z"),
    (b"@every 1h0.5s", "2026-05-04T04:02:02.5Z"),
    (b"@yearly", "2027-01-01T00:00:00Z"),
    (b"@annually", "2027-01-01T00:00:00Z"),
    (b"@monthly", "2026-06-01T00:00:00Z"),
    (b"@weekly", "2026-05-10T00:00:00Z"),
    (b"@daily", "2026-05-05T00:00:00Z"),
    (b"@midnight", "2026-05-05T00:00:00Z"),
    (b"@hourly", "2026-05-04T04:00:00Z"),
    (b"10 3 2 * * *", "2026-05-05T02:03:10Z"),
]


@pytest.mark.parametrize(("text", "expected"), NEXT)
def test_next(text: bytes, expected: str) -> None:
    pattern = parse_pattern(text)
    assert pattern is not None
    assert format_time(pattern.next_ns(AFTER, AFTER)) == expected
    assert pattern.repeats is not text.startswith(b"@at")


def test_what_was_missed_is_passed_over() -> None:
    """An interval continues from now, a calendar with its next time; missed times are skipped."""
    now = parse_time("2026-05-04T10:00:00.2Z")
    for text, expected in ((b"@every 7m", "2026-05-04T10:07:00Z"), (b"@hourly", "11:00:00Z")):
        pattern = parse_pattern(text)
        assert pattern is not None
        assert format_time(pattern.next_ns(AFTER, now)).endswith(expected)


def test_nothing_is_asked_for() -> None:
    assert parse_pattern(b"") is None
    assert parse_pattern(b"", b"Europe/Paris") is None
    assert parse_pattern(b"@at 0001-01-01T00:00:00Z") is None  # Go's zero time, which is no time
    assert parse_pattern(b"@at 1970-01-01T00:00:00Z") is not None


@pytest.mark.parametrize(
    "text",
    [
        b"@at",
        b"@at ",
        b"@at 2026-13-01T00:00:00Z",
        b"@at  2026-01-01T00:00:00Z",
        b"@every",
        b"@every 0.9s",
        b"@every -5s",
        b"@every 5",
        b"@never",
        b"@Hourly",
        b" @hourly",
        b"\xff\xfe * * * * *",
    ],
)
def test_invalid(text: bytes) -> None:
    with pytest.raises(InvalidPattern):
        parse_pattern(text)


@pytest.mark.parametrize("zone", [b"", b"Mars", b"/etc/localtime", b"../UTC", b"Europe", b"\xff"])
def test_no_time_zone(zone: bytes) -> None:
    with pytest.raises(InvalidTimeZone):
        parse_pattern(b"@daily", zone)


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("Asia/Kathmandu", "2026-05-05T00:00:00+05:45"),
        (":Asia/Kathmandu", "2026-05-05T00:00:00+05:45"),
        ("", "2026-05-05T00:00:00Z"),
        ("Mars", "2026-05-05T00:00:00Z"),
    ],
)
def test_the_zone_of_the_server(monkeypatch: pytest.MonkeyPatch, zone: str, expected: str) -> None:
    """`Local` is the zone that `TZ` names, and UTC if it names none, as in Go."""
    monkeypatch.setenv("TZ", zone)
    _parse.cache_clear()
    pattern = parse_pattern(b"@daily", b"Local")
    _parse.cache_clear()
    assert pattern is not None
    assert format_next(pattern, pattern.next_ns(AFTER, AFTER)) == expected


@pytest.mark.parametrize("text", [b"@at 2026-01-01T00:00:00Z", b"@every 1s"])
def test_a_time_zone_is_for_the_calendar(text: bytes) -> None:
    with pytest.raises(InvalidPattern):
        parse_pattern(text, b"UTC")


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        (None, "2026-05-05T00:00:00Z"),
        (b"UTC", "2026-05-05T00:00:00Z"),
        (b"Asia/Kathmandu", "2026-05-05T00:00:00+05:45"),
        (b"America/New_York", "2026-05-04T00:00:00-04:00"),
    ],
)
def test_the_next_time_as_it_is_told(zone: bytes | None, expected: str) -> None:
    pattern = parse_pattern(b"@daily", zone)
    assert pattern is not None
    assert format_next(pattern, pattern.next_ns(AFTER, AFTER)) == expected
