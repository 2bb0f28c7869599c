"""Warnings about request bodies that cannot be read: each once in a while, whoever repeats it.

Source: nats-server 2.14, tried: the same warning is written once a second at most.
"""

import logging
from collections.abc import Callable
from typing import Final

_logger = logging.getLogger(__name__)

FORGET_AFTER_S: Final = 1.0
WARNINGS_MAX: Final = 64
"""Different warnings within `FORGET_AFTER_S`; more are not written."""
WARNING_CHARACTERS_MAX: Final = 1_000
"""What is longer, since it repeats a value of the request, is cut."""


class InvalidRequests:
    """Those of one server; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._written: set[str] = set()
        self._since_s = clock()

    def warn(self, account: str, subject: str, error: Exception) -> None:
        """Log what is wrong with a request, unless that was logged a moment ago."""
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
