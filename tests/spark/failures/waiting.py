"""Waiting in tests that are not asynchronous: with a deadline, and no sleep for luck."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import pytest

from tests.store.crash import TORTURE

DEADLINE_S: Final = 600.0
"""Longer than a test may take: that says which test it was."""
POLL_S: Final = 0.05

bounded = pytest.mark.timeout(220 if TORTURE == 1 else 7200)  # below faulthandler_timeout


def wait_until(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    give_up_at = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < give_up_at, f"still false after {deadline_s} s"
        time.sleep(POLL_S)


def pause(seconds: float) -> None:
    """A while that a test has drawn by lot: whatever is killed behind it, is killed somewhere."""
    time.sleep(seconds)
