"""Lame duck mode: a server that is about to stop sends its clients away, a few at a time.

    stop listening ─ end JetStream ─ INFO ldm ─ grace period ─ close client after client ─ stop

- Clients that understand it are told at once (`ldm` in INFO) and may connect elsewhere on their
  own; the grace period keeps them from meeting at a server that is about to be a lame duck too.
- The other connections are closed one by one, spread over the duration without the grace period,
  but with at most a second in between.

Source: nats-server 2.14 reference 9.3.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from natsd.clients import Client
from natsd.config import Options
from natsd.core.reasons import ClosedReason

_logger = logging.getLogger("natsd.server")

SPREAD_S_MIN: Final = 1.0
PAUSE_S_MIN: Final = 0.001
PAUSE_S_MAX: Final = 1.0
_JITTER_STEPS: Final = 1000


@dataclass(frozen=True, slots=True)
class Spread:
    """How clients are closed: so many at a time, with a pause behind them."""

    batch: int
    pause_s: float

    @classmethod
    def of(cls, clients: int, spread_s: float) -> "Spread":
        """Over `spread_s` seconds, as far as the pauses allow."""
        pause_s = spread_s / max(clients, 1)
        batch = 1
        if pause_s < PAUSE_S_MIN:
            batch = -int(-clients * PAUSE_S_MIN // spread_s)
            pause_s = PAUSE_S_MIN
        return cls(batch, min(pause_s, PAUSE_S_MAX))

    def next_pause_s(self) -> float:
        """From half of the pause to all of it: servers that began together do not stay in step."""
        return self.pause_s * (1 + secrets.randbelow(_JITTER_STEPS) / _JITTER_STEPS) / 2


async def move_clients(
    options: Options, clients: Mapping[int, Client], end_jetstream: Callable[[], Awaitable[None]]
) -> None:
    """Send the clients of a server away that no longer listens; returns when none is left."""
    await end_jetstream()
    if not clients:
        return
    grace_s = options.lame_duck_grace_period.total_seconds()
    spread_s = max(options.lame_duck_duration.total_seconds() - grace_s, SPREAD_S_MIN)
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
