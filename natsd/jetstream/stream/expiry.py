"""When a stream's messages expire: one alarm, and none where nothing ever does.

Promise
- What is over age, or past its own time, goes within `INTERVAL_NS` of it; one look at a time, in
  slices, and what is done of it does not depend on how much is left.
- An empty stream is looked at again before anything that comes now could expire.
- What cannot be replaced by a marker is tried again after RETRY_NS.

Source: nats-server 2.14 reference 6.4 (`max_age`), 6.7 (TTL).
"""

import asyncio
import logging
from typing import Final

from natsd.jetstream.scheduler import Alarm, Scheduler
from natsd.store.errors import StoreError
from natsd.store.log_store import LogStore, Replace

_logger = logging.getLogger(__name__)

INTERVAL_NS: Final = 250_000_000
"""Between two looks at one stream: nats-server's."""
RETRY_NS: Final = 2_000_000_000


class Expiry:
    """Has a store remove what expires, from `begin` to `close`."""

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
        """Look now, and whenever something expires; after a change of limits, again. `replace` is
        given what is the last of its subject (`LogStore.expire`)."""
        self._is_open = True
        self._replace = replace
        self._set(self._scheduler.now_ns(), 0)

    def note(self, expires_ns: int) -> None:
        """A message came that goes then: perhaps before everything that was there."""
        if self._is_open and not 0 < self._next_ns <= expires_ns:
            self._wake(expires_ns)

    def close(self) -> None:
        """Never again."""
        self._is_open = False
        self._alarm.cancel()

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
            return  # it sets the next one at its end
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
        except (StoreError, OSError) as error:  # the next look tries again, unless it is closed
            wait_ns = RETRY_NS
            _logger.debug("JetStream: stream %s: expiry: %s", self._name, error)
        finally:
            self._work = None
        if self._is_open:
            self._set(self._scheduler.now_ns(), wait_ns)
