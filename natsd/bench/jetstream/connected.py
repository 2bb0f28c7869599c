"""The common part of load processes with one connection: its begin and end, and timing a run."""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from natsd.bench import wire
from natsd.bench.frames import sub
from natsd.bench.result import RoleResult

STALL_SECONDS_MAX: Final = 10.0


@dataclass
class Connected:
    """One connection to the server, with one subscription."""

    host: str
    port: int
    _sock: socket.socket = field(init=False, repr=False)

    def _connect(self, subject: bytes) -> None:
        """Connect and subscribe; a later read fails if nothing arrives for STALL_SECONDS_MAX."""
        self._sock = wire.connect(self.host, self.port, sub(subject))
        wire.set_receive_timeout(self._sock, STALL_SECONDS_MAX)

    def close(self) -> None:
        """Close the connection."""
        wire.close_with_reset(self._sock)


def timed(name: str, work: Callable[[], None]) -> RoleResult:
    """Call `work` and return a result with the instants of its begin and end.

    If `work` raises OSError or LoadError, the error becomes the result's problem.
    """
    started_ns, problem = time.perf_counter_ns(), ""
    try:
        work()
    except (OSError, wire.LoadError) as error:
        problem = f"{name}: {error}"
    return RoleResult(started_ns, time.perf_counter_ns(), problem=problem)
