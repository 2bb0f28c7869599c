"""How natsd serves its sockets in a test.

By default as on this system; a test or module marked `served_every_way` runs three times: from the
poller, and from the transports of uvloop and of asyncio, as where there is no poller. Only the
start of a server looks at it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from enum import Enum
from unittest import mock

VARIABLE = "NATSD_TEST_SERVING"


class Serving(Enum):
    """The ways."""

    DEFAULT = "default"
    UVLOOP_TRANSPORTS = "uvloop-transports"
    ASYNCIO_TRANSPORTS = "asyncio-transports"

    @contextlib.contextmanager
    def chosen(self) -> Iterator[None]:
        """Servers that start meanwhile, here or in a process of `tests.clients.serve`, do so."""
        with contextlib.ExitStack() as patches:
            if self is not Serving.DEFAULT:
                patches.enter_context(mock.patch.dict(os.environ, {VARIABLE: self.value}))
                patches.enter_context(mock.patch("natsd.server.server.has_poller", no_poller))
            if self is Serving.ASYNCIO_TRANSPORTS:
                patches.enter_context(
                    mock.patch("natsd.server.threaded.loop_factory", asyncios_own_loop)
                )
            yield


def inherited() -> Serving:
    """What the process that started this one chose."""
    return Serving(os.environ.get(VARIABLE, Serving.DEFAULT.value))


def no_poller() -> bool:
    return False


def asyncios_own_loop() -> None:
    return None
