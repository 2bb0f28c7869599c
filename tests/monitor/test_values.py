"""Values in answers are written as nats-server writes them."""

from datetime import UTC, datetime

import pytest

from natsd.monitor.values import datetime_ns, number, round_trip, timestamp, uptime

SECOND_NS = 1_000_000_000
DAY_S = 86_400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m0s"),
        (3_600, "1h0m0s"),
        (DAY_S + 1, "1d0h0m1s"),
        (365 * DAY_S + 2 * DAY_S + 3 * 3_600 + 4 * 60 + 5, "1y2d3h4m5s"),
    ],
)
def test_uptime_starts_with_the_largest_unit(seconds: int, text: str) -> None:
    assert uptime(seconds * SECOND_NS + 999_999_999) == text


def test_uptime_is_never_negative() -> None:
    assert uptime(-1) == "0s"


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "2026-11-21T00:26:11Z"),
        (907_410_132, "2026-11-21T00:26:11.907410132Z"),
        (907_000_000, "2026-11-21T00:26:11.907Z"),
        (1, "2026-11-21T00:26:11.000000001Z"),
    ],
)
def test_timestamps_have_the_decimals_they_need(nanoseconds: int, text: str) -> None:
    second = datetime_ns(datetime(2026, 11, 21, 0, 26, 11, tzinfo=UTC))
    assert timestamp(second + nanoseconds) == text


@pytest.mark.parametrize(
    ("rtt_ns", "text"), [(0, "0s"), (999, "999ns"), (785_432, "785µs"), (1_234_567, "1.234567ms")]
)
def test_round_trips(rtt_ns: int, text: str) -> None:
    assert round_trip(rtt_ns) == text


def test_whole_floats_lose_their_point() -> None:
    assert [str(number(value)) for value in (2.0, 0.5, 0)] == ["2", "0.5", "0"]
