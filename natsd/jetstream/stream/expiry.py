"""The expiry of a stream's messages: one alarm, and none where no message ever expires.

Promise
- A message over `max_age`, or past its own TTL, is removed within `INTERVAL_NS`. One check runs at
  a time, in slices, whose cost does not depend on the number of remaining messages.
- An empty stream is checked again before any message that arrives now could expire.
- A message that cannot be replaced by a marker now is tried again after RETRY_NS.

Source: ADR-43 for TTLs; the stream setting `max_age`.
"""

import asyncio
import logging
from typing import Final

from natsd.jetstream.stream.state import Alarm, Scheduler
from natsd.store.errors import StoreError
from natsd.store.log_store import LogStore, Replace

_logger = logging.getLogger(__name__)

INTERVAL_NS: Final = 250_000_000
"""Time between two checks of one stream, in ns: that of nats-server."""
RETRY_NS: Final = 2_000_000_000


class Expiry:
    """The task that has a store remove expired messages, from `begin` to `close`."""

    def __init__(self, scheduler: Scheduler, store: LogStore, name: str) -> None:
        self._scheduler = scheduler
        self._store = store
        self._name = name
        self._replace: Replace | None = None
        self._alarm = Alarm(scheduler, self._due)
        self._work: asyncio.Task[None] | None = None
        self._is_open = False
        self._next_ns = 0

    def begin(self, replace: Replace | None = None) -> None:
        """Check now and whenever a message expires; also to be called after a change of limits.

        `replace` is called with expired messages that are the last of their subjects
        (`LogStore.expire`).
        """
        self._is_open = True
        self._replace = replace
        self._set(self._scheduler.now_ns(), 0)

    def note(self, expires_ns: int) -> None:
        """Note a new message that expires at `expires_ns`, perhaps before all others."""
        if self._is_open and not 0 < self._next_ns <= expires_ns:
            self._wake(expires_ns)

    def close(self) -> None:
        """Stop checking; nothing more is removed, also by a check that runs."""
        self._is_open = False
        self._alarm.cancel()
        if self._work is not None:
            self._work.cancel()

    def _set(self, now_ns: int, wait_ns: int) -> None:
        max_age_ns = self._store.limits.max_age_ns
        next_ns = self._store.next_expiry_ns()
        if next_ns is None and not max_age_ns:
            self._alarm.cancel()
            self._next_ns = 0
            return
        latest = now_ns + max_age_ns if next_ns is None else next_ns
        self._wake(max(latest, now_ns + wait_ns))

    def _wake(self, at_ns: int) -> None:
        self._next_ns = at_ns
        self._alarm.set(at_ns)

    def _due(self, now_ns: int) -> None:
        if self._work is not None:
            return  # the running check sets the next alarm
        next_ns = self._store.next_expiry_ns()
        if next_ns is not None and next_ns <= now_ns:
            self._work = asyncio.ensure_future(self._expire(now_ns))
        else:
            self._set(now_ns, INTERVAL_NS)

    async def _expire(self, now_ns: int) -> None:
        wait_ns = INTERVAL_NS
        try:
            await self._store.expire(now_ns, self._replace)
            next_ns = self._store.next_expiry_ns()
            if self._replace is not None and next_ns is not None and next_ns <= now_ns:
                wait_ns = RETRY_NS
        except (StoreError, OSError) as error:  # the next check tries again, unless closed
            wait_ns = RETRY_NS
            _logger.debug("JetStream: stream %s: expiry: %s", self._name, error)
        finally:
            self._work = None
        if self._is_open:
            self._set(self._scheduler.now_ns(), wait_ns)
