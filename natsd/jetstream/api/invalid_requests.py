"""Warnings about unreadable request bodies, limited in rate: each text once a second at most.

Source: nats-server's `RateLimitWarnf`.
"""

import logging
from collections.abc import Callable
from typing import Final

_logger = logging.getLogger(__name__)

FORGET_AFTER_S: Final = 1.0
WARNINGS_MAX: Final = 64
"""Different warnings within `FORGET_AFTER_S`; further ones are not written."""
WARNING_CHARACTERS_MAX: Final = 1_000
"""A warning repeats a value of the request, so a longer text is cut."""


class InvalidRequests:
    """Warnings of one server; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._written: set[str] = set()
        self._since_s = clock()

    def warn(self, account: str, subject: str, error: Exception) -> None:
        """Log the error of a request, unless it was logged less than `FORGET_AFTER_S` ago."""
        now_s = self._clock()
        if now_s - self._since_s >= FORGET_AFTER_S:
            self._written.clear()
            self._since_s = now_s
        text = f"Invalid JetStream request '{account} > {subject}': {error}"
        if len(text) > WARNING_CHARACTERS_MAX:
            text = f"{text[:WARNING_CHARACTERS_MAX]} … ({len(text):,} characters)"
        if text in self._written or len(self._written) >= WARNINGS_MAX:
            return
        self._written.add(text)
        _logger.warning("%s", text)
