"""Times on the wire, as in the header `Nats-Time-Stamp` (ADR-31)."""

from hypothesis import given
from hypothesis import strategies as st

from natsd.jetstream.models.times import format_time
from natsd.jetstream.stream.state import timestamp


def test_digits_of_zero_at_the_end_are_left_out() -> None:
    assert timestamp(0) == "1970-01-01T00:00:00Z"
    assert timestamp(1_709_208_000_123_400_000) == "2024-02-29T12:00:00.1234Z"
    assert timestamp(2**63 - 1) == "2262-04-11T23:47:16.854775807Z"


@given(st.integers(-(2**63) + 1, 2**63 - 1).filter(bool))
def test_it_is_what_the_api_says(time_ns: int) -> None:
    assert timestamp(time_ns) == format_time(time_ns)
