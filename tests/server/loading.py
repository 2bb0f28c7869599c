"""The import of JetStream, which a test can hold back."""

from __future__ import annotations

import asyncio
import importlib
import threading
from types import ModuleType, SimpleNamespace
from typing import Final

import pytest

LOADING_DEADLINE_S: Final = 30.0


class SlowLoading:
    """A replacement for the import of JetStream that waits until the test lets it continue."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._begun = threading.Event()
        self.may_go_on = threading.Event()
        self.error: Exception | None = None
        slow = SimpleNamespace(import_module=self._import_module)
        monkeypatch.setattr("natsd.server.jetstream.importlib", slow)

    def _import_module(self, name: str) -> ModuleType:
        self._begun.set()
        assert self.may_go_on.wait(LOADING_DEADLINE_S)
        if self.error is not None:
            raise self.error
        return importlib.import_module(name)

    async def begun(self) -> None:
        assert await asyncio.to_thread(self._begun.wait, LOADING_DEADLINE_S)
