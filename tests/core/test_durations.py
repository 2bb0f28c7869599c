"""Durations read and written as Go does."""

from datetime import timedelta

import pytest

from natsd.core.durations import (
    DurationError,
    format_duration,
    format_duration_ns,
    parse_duration,
    parse_duration_ns,
)

READ = {
    "2m": timedelta(minutes=2),
    "1h30m": timedelta(hours=1, minutes=30),
    "1.5s": timedelta(seconds=1.5),
    ".5s": timedelta(milliseconds=500),
    "250ms": timedelta(milliseconds=250),
    "10us": timedelta(microseconds=10),
    "10µs": timedelta(microseconds=10),
    "-2s": timedelta(seconds=-2),
    "0": timedelta(0),
    10: timedelta(seconds=10),
    0.25: timedelta(milliseconds=250),
    timedelta(hours=1): timedelta(hours=1),
}


@pytest.mark.parametrize(("given", "expected"), READ.items())
def test_reads_go_strings_and_seconds(given: object, expected: timedelta) -> None:
    assert parse_duration(given) == expected


@pytest.mark.parametrize(
    "bad", ["", "2", "m", "2x", "1m2", "s1", "1 s", "1e3s", "--1s", "9999999h", None, True]
)
def test_refuses_anything_else(bad: object) -> None:
    with pytest.raises(DurationError):
        parse_duration(bad)


# What Go's Duration.String gives for these nanoseconds.
WRITTEN = {
    0: "0s",
    1: "1ns",
    1_100: "1.1µs",
    785_000: "785µs",
    2_200_000: "2.2ms",
    3_300_000_000: "3.3s",
    60_000_000_000: "1m0s",
    245_000_000_000: "4m5s",
    245_001_000_000: "4m5.001s",
    3_600_000_000_000: "1h0m0s",
    19_506_001_000_000: "5h25m6.001s",
    480_000_000_001: "8m0.000000001s",
    -1_500_000_000: "-1.5s",
}


@pytest.mark.parametrize(("nanoseconds", "text"), WRITTEN.items())
def test_writes_and_reads_back_like_go(nanoseconds: int, text: str) -> None:
    assert format_duration_ns(nanoseconds) == text
    assert parse_duration_ns(text) == nanoseconds


def test_writes_a_timedelta() -> None:
    assert format_duration(timedelta(minutes=2)) == "2m0s"
