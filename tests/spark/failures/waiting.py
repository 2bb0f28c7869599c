"""Waiting in tests that are not asynchronous: with a deadline, and no sleep for luck."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

DEADLINE_S: Final = 90.0
POLL_S: Final = 0.05


def wait_until(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    give_up_at = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < give_up_at, f"still false after {deadline_s} s"
        time.sleep(POLL_S)


def pause(seconds: float) -> None:
    """A while that a test has drawn by lot: whatever is killed behind it, is killed somewhere."""
    time.sleep(seconds)
