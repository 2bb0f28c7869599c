"""Sums of whole numbers in decimal text, against Python's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.jetstream.stream.checks import sum_of

NUMBERS = st.integers() | st.integers(-(10**60), 10**60)


@given(NUMBERS, NUMBERS)
def test_of_any_two(one: int, other: int) -> None:
    assert sum_of(b"%d" % one, b"%d" % other) == b"%d" % (one + other)


@given(NUMBERS, st.integers(0, 3))
def test_however_they_are_written(number: int, zeros: int) -> None:
    sign = b"-" if number < 0 else b"+"
    written = sign + b"0" * zeros + b"%d" % abs(number)
    assert sum_of(written, b"-0") == b"%d" % number


@pytest.mark.parametrize("text", [b"", b"+", b"-", b"1_0", b" 1", b"1 ", b"+-1", b"0x1", b"1.0"])
def test_nothing_else_is_a_number(text: bytes) -> None:
    assert sum_of(text, b"1") is None
    assert sum_of(b"1", text) is None


def test_as_many_digits_as_fit_into_headers() -> None:
    nines = b"9" * 65_000
    assert sum_of(nines, b"1") == b"1" + b"0" * 65_000
    assert sum_of(b"1" + b"0" * 65_000, b"-1") == nines
