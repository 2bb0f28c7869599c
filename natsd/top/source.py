"""The summary of a natsd, as its `/summaryz` gives it, and what every such source has."""

from collections import deque
from typing import Any, Final, Protocol

from natsd.top.endpoints import Endpoints, Fields

SAMPLES_MAX: Final = 300


class Source(Protocol):
    """What `natsd top` draws."""

    def summary(self) -> Fields:
        """Return the summary with its whole history. Raises TopError."""


class NatsdSource:
    """The summary of a natsd; the history is kept here, and only new samples are asked for."""

    def __init__(self, endpoints: Endpoints, first: Fields) -> None:
        self._endpoints = endpoints
        self._server_id = ""
        self._last = 0
        self._history: dict[str, deque[Any]] = {}
        self._first: Fields | None = first

    def summary(self) -> Fields:
        """Return the summary with its whole history. Raises TopError."""
        answer, self._first = self._first, None
        if answer is None:
            answer = self._endpoints.get(f"summaryz?after={self._last}")
        assert answer is not None
        if self._server_id and answer["server"]["id"] != self._server_id:
            self._history.clear()
            answer = self._endpoints.get("summaryz")
            assert answer is not None
        self._server_id, self._last = answer["server"]["id"], answer["history"]["last"]
        for field, values in answer["history"].items():
            if isinstance(values, list):
                self._history.setdefault(field, deque(maxlen=SAMPLES_MAX)).extend(values)
        return answer | {"history": {field: list(each) for field, each in self._history.items()}}
