"""Numbers, spans and sparklines as `natsd top` writes them."""

import pytest

from natsd.top.texts import age_s, plain, short, size, span, sparkline


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "–"),
        (0, "0"),
        (0.0, "0"),
        (7.25, "7.2"),
        (950, "950"),
        (999.7, "1.00k"),
        (12_345, "12.3k"),
        (4_560_000, "4.56M"),
        (10**15, "1.00P"),
    ],
)
def test_a_number_is_short(number: float | None, text: str) -> None:
    assert short(number) == text


def test_a_size_has_binary_units() -> None:
    assert [size(each) for each in (0, 1023, 1536, 20 << 20)] == ["0B", "1023B", "1.50K", "20.0M"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0, "0s"), (59, "59s"), (60, "1m"), (725, "12m 5s"), (273_600, "3d 4h")],
)
def test_a_span_has_its_two_largest_units(seconds: float | None, text: str) -> None:
    assert span(seconds) == text


def test_ages_are_read_from_times_of_any_precision() -> None:
    assert age_s("2026-11-23T10:00:00Z", "2026-11-23T10:00:01.500000000Z") == 1.5
    assert age_s(None, "2026-11-23T10:00:00Z") is None


def test_a_sparkline_has_the_latest_numbers() -> None:
    assert sparkline([9, 0, 4, 8], 3) == "▁▅█"
    assert sparkline([0, None], 5) == "▁▁"
    assert sparkline([1], 0) == sparkline([], 5) == ""


def test_nothing_reaches_the_terminal_that_it_could_act_upon() -> None:
    assert plain("a\x1b[31mb\x07c\u202ed") == "a�[31mb�c�d"
