"""Times as the API writes them, and Go's error texts for unreadable ones."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.core.wall_time import TimeError
from natsd.jetstream.models.times import (
    TIME_NS_MAX,
    TIME_NS_MIN,
    format_time,
    parse_time,
)

SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "0001-01-01T00:00:00Z"),
        (1, "1970-01-01T00:00:00.000000001Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (1_700_000_000 * SECOND_NS, "2023-11-14T22:13:20Z"),
        (1_700_000_000 * SECOND_NS + 120_000_000, "2023-11-14T22:13:20.12Z"),
        (TIME_NS_MAX, "2262-04-11T23:47:16.854775807Z"),
    ],
)
def test_written_and_read(time_ns: int, text: str) -> None:
    assert format_time(time_ns) == text
    assert parse_time(text) == time_ns


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:30:00-00:30", 0),
        ("1970-01-01T00:00:01,5Z", 1_500_000_000),
        ("1970-01-01T00:00:00.1234567891Z", 123_456_789),
        ("9999-12-31T23:59:59Z", TIME_NS_MAX),
        ("0001-01-02T00:00:00Z", TIME_NS_MIN),
    ],
)
def test_read(text: str, time_ns: int) -> None:
    assert parse_time(text) == time_ns


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("yesterday", 'as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"'),
        ("2020-01-01", 'as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T"'),
        ("2020-01-01T00:00:00", 'as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00"'),
        ("2020-01-01T00:00:00Zz", 'extra text: "z"'),
        ("2020-13-01T00:00:00Z", "month out of range"),
        ("2020-02-30T00:00:00Z", "day out of range"),
        ("2020-02-01T24:00:00Z", "hour out of range"),
        ("2020-02-01T23:60:00Z", "minute out of range"),
        ("2020-02-01T23:00:60Z", "second out of range"),
    ],
)
def test_why_not(text: str, reason: str) -> None:
    with pytest.raises(TimeError) as raised:
        parse_time(text)
    assert str(raised.value).startswith(f'parsing time "{text}"')
    assert str(raised.value).endswith(reason)


@given(st.integers(TIME_NS_MIN, TIME_NS_MAX))
def test_what_is_written_is_read_again(time_ns: int) -> None:
    assert parse_time(format_time(time_ns)) == time_ns


@given(st.text(alphabet="0123456789-:TZ.+ x", max_size=30))
def test_no_text_does_harm(text: str) -> None:
    with contextlib.suppress(TimeError):
        assert TIME_NS_MIN <= parse_time(text) <= TIME_NS_MAX
