"""The pauses between attempts."""

from __future__ import annotations

import pytest

from natsd.jetstream.sourcing.backoff import resume_delay_ns, retry_delay_ns

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("fails", "delay_ns"),
    [
        (1, SECOND // 4),
        (5, 2 * SECOND),
        (6, 10 * SECOND),
        (8, 30 * SECOND),
        (17, 120 * SECOND),
        (10_000, 120 * SECOND),
    ],
)
def test_quick_at_first_then_ever_later(fails: int, delay_ns: int) -> None:
    assert retry_delay_ns(fails, 0) == delay_ns


def test_a_little_by_chance() -> None:
    assert retry_delay_ns(1, 99_999_999) - retry_delay_ns(1, 0) == 99_999_999
    assert retry_delay_ns(1, 100_000_000) == retry_delay_ns(1, 0)


def test_what_worked_is_resumed_within_seconds() -> None:
    assert resume_delay_ns(0, 0) == SECOND // 4
    assert resume_delay_ns(1_000, 0) == 2 * SECOND
