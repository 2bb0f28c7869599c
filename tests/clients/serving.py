"""The ways in which natsd can serve its sockets in a test.

By default it serves as it does on this system. A test or module marked `served_every_way` runs
three times: with the poller, and with the transports of uvloop and of asyncio, as on systems
without the poller. Only the start of a server depends on it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from enum import Enum
from unittest import mock

VARIABLE = "NATSD_TEST_SERVING"


class Serving(Enum):
    """A way to serve sockets."""

    DEFAULT = "default"
    UVLOOP_TRANSPORTS = "uvloop-transports"
    ASYNCIO_TRANSPORTS = "asyncio-transports"

    @contextlib.contextmanager
    def chosen(self) -> Iterator[None]:
        """Serve in this way in all servers that start during the `with`.

        This includes servers in a process of `tests.clients.serve`.
        """
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
    """Return the way that the process which started this one has chosen."""
    return Serving(os.environ.get(VARIABLE, Serving.DEFAULT.value))


def no_poller() -> bool:
    return False


def asyncios_own_loop() -> None:
    return None
