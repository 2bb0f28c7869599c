"""Requests that wait, and those that are being answered: so many at once, each asset's in order.

    add ──▶ waiting ──▶ at most `at_once` tasks, each behind those that concern the same asset

- Of one asset, requests are carried out in the order in which they came: what concerns a whole
  stream waits for all before it that concern the stream or one of its consumers, and they for it;
  requests about different consumers of a stream go side by side.
- When `limit` are waiting, all that wait are dropped: clients that are not answered in time ask
  again, and nobody should wait behind what nobody reads any more.

Source: reference §6.1.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

Work = Callable[[], Coroutine[Any, Any, None]]
Asset = tuple[str, ...]
"""(account, stream) or (account, stream, consumer); () concerns nothing that others do."""

_STREAM_PARTS: Final = 2


class _StreamOrder:
    """The last task that concerns a whole stream, and the last one behind it of each consumer."""

    def __init__(self) -> None:
        self.whole: asyncio.Task[None] | None = None
        self.consumers: dict[Asset, asyncio.Task[None]] = {}

    def ahead_of(self, asset: Asset) -> list[asyncio.Task[None]]:
        """What must be done before a request about the asset may begin."""
        whole = [] if self.whole is None else [self.whole]
        if len(asset) == _STREAM_PARTS:
            return whole + list(self.consumers.values())
        return [self.consumers[asset]] if asset in self.consumers else whole

    def append(self, asset: Asset, task: asyncio.Task[None]) -> None:
        if len(asset) == _STREAM_PARTS:
            self.whole = task
            self.consumers.clear()  # the task waits for them
        else:
            self.consumers[asset] = task

    def remove(self, asset: Asset, task: asyncio.Task[None]) -> bool:
        """Whether nothing is left."""
        if self.whole is task:
            self.whole = None
        if self.consumers.get(asset) is task:
            del self.consumers[asset]
        return self.whole is None and not self.consumers


class WaitingRequests:
    """Used on one event loop only; `dropped(count)` is called when that many were given up."""

    def __init__(self, limit: int, at_once: int, dropped: Callable[[int], object]) -> None:
        self._limit = limit
        self._at_once = at_once
        self._dropped = dropped
        self._waiting = deque[tuple[Asset, Work]]()
        self._running: set[asyncio.Task[None]] = set()
        self._order: dict[Asset, _StreamOrder] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, asset: Asset, work: Work) -> None:
        """Have `work` done; it must not raise."""
        if self._is_closed:
            return
        self._waiting.append((asset, work))
        if len(self._running) < self._at_once:
            self._start_next()
        elif len(self._waiting) >= self._limit:
            count = len(self._waiting)
            self._waiting.clear()
            self._dropped(count)

    async def close(self) -> None:
        """Give up what waits, and let what has begun come to its end."""
        self._is_closed = True
        self._waiting.clear()
        if self._running:
            await asyncio.wait(set(self._running))

    def _start_next(self) -> None:
        asset, work = self._waiting.popleft()
        if not asset:
            task = asyncio.create_task(work())
        else:
            order = self._order.setdefault(asset[:_STREAM_PARTS], _StreamOrder())
            task = asyncio.create_task(_behind(order.ahead_of(asset), work))
            order.append(asset, task)
        self._running.add(task)
        task.add_done_callback(lambda task: self._ended(asset, task))

    def _ended(self, asset: Asset, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        stream = asset[:_STREAM_PARTS]
        if asset and self._order[stream].remove(asset, task):
            del self._order[stream]
        if self._waiting:
            self._start_next()


async def _behind(ahead: list[asyncio.Task[None]], work: Work) -> None:
    if ahead:
        await asyncio.wait(ahead)
    await work()
