"""Waiting with a deadline in synchronous tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import pytest

from tests.store.crash import TORTURE

DEADLINE_S: Final = 600.0
"""Longer than a test's time limit, whose error names the test."""
POLL_S: Final = 0.05

bounded = pytest.mark.timeout(220 if TORTURE == 1 else 7200)  # below faulthandler_timeout


def wait_until(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    give_up_at = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < give_up_at, f"still false after {deadline_s} s"
        time.sleep(POLL_S)


def pause(seconds: float) -> None:
    """Sleep for a time that the test has drawn, so that the next kill comes at a random point."""
    time.sleep(seconds)
