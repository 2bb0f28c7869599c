"""Lame duck mode: a server that is about to stop disconnects its clients, a few at a time.

    stop listening ─ end JetStream ─ INFO ldm ─ grace period ─ close client after client ─ stop

- The other servers of the cluster are told, so that they do not send clients here.
- Clients that support it are told at once (`ldm` in INFO) and may connect to another server
  themselves. The grace period keeps them from choosing a server that is about to enter lame duck
  mode too.
- The remaining connections are closed one by one, spread over the duration minus the grace period,
  but with pauses of at most a second.

Source: nats-server's `lameDuckMode` (server/server.go).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from natsd.clients import Client
from natsd.config import Options
from natsd.core.reasons import ClosedReason

_logger = logging.getLogger("natsd.server")

SPREAD_S_MIN: Final = 1.0
"""Seconds over which the closing of all clients is spread, at least."""
PAUSE_S_MIN: Final = 0.001
PAUSE_S_MAX: Final = 1.0
_JITTER_STEPS: Final = 1000


@dataclass(frozen=True, slots=True)
class Spread:
    """The pace at which clients are closed: `batch` clients at a time, then a pause."""

    batch: int
    pause_s: float

    @classmethod
    def of(cls, clients: int, spread_s: float) -> "Spread":
        """Return the pace that closes `clients` in `spread_s` seconds, within the pauses' limits.

        The limits are PAUSE_S_MIN and PAUSE_S_MAX.
        """
        pause_s = spread_s / max(clients, 1)
        batch = 1
        if pause_s < PAUSE_S_MIN:
            batch = -int(-clients * PAUSE_S_MIN // spread_s)
            pause_s = PAUSE_S_MIN
        return cls(batch, min(pause_s, PAUSE_S_MAX))

    def next_pause_s(self) -> float:
        """Return a random pause between half of `pause_s` and `pause_s`, in seconds.

        So servers that began together do not close their clients at the same moments.
        """
        import secrets  # here, since it loads OpenSSL: a fifteenth of a start

        return self.pause_s * (1 + secrets.randbelow(_JITTER_STEPS) / _JITTER_STEPS) / 2


async def move_clients(
    options: Options,
    clients: Mapping[int, Client],
    end_jetstream: Callable[[], Awaitable[None]],
    tell_servers: Callable[[], object],
) -> None:
    """Stop JetStream, announce lame duck mode, and close all clients, as the settings say.

    The server must not listen any more. Returns when every client was closed.
    """
    await end_jetstream()
    if not clients:
        return
    grace_s = options.lame_duck_grace_period.total_seconds()
    spread_s = max(options.lame_duck_duration.total_seconds() - grace_s, SPREAD_S_MIN)
    tell_servers()
    for client in list(clients.values()):
        client.announce_lame_duck()
    await asyncio.sleep(grace_s)
    _logger.info("Closing existing clients")
    leaving = list(clients.values())
    spread = Spread.of(len(leaving), spread_s)
    for index, client in enumerate(leaving):
        if index and index % spread.batch == 0:
            await asyncio.sleep(spread.next_pause_s())
        client.close(ClosedReason.SERVER_SHUTDOWN)
