"""Queue of requests: a limited number runs at once, and those about an asset run in order.

    add ──▶ waiting ──▶ at most `at_once` tasks, each behind those that concern the same asset

- Requests about an asset are carried out in the order of arrival: a request about a whole stream
  waits for all earlier ones about the stream or one of its consumers, and later ones wait for it;
  requests about different consumers of a stream run concurrently.
- When `limit` requests wait, all of them are dropped: clients that get no answer in time ask again,
  and a request should not wait behind requests whose clients have given up.

Source: nats-server's `processJSAPIRoutedRequests` and its limit `JSDefaultRequestQueueLimit`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

Work = Callable[[], Coroutine[Any, Any, None]]
Asset = tuple[str, ...]
"""(account, stream) or (account, stream, consumer); (): in no order with other requests."""

_STREAM_PARTS: Final = 2


class _StreamOrder:
    """The last task about a whole stream, and the last task about each consumer after it."""

    def __init__(self) -> None:
        self.whole: asyncio.Task[None] | None = None
        self.consumers: dict[Asset, asyncio.Task[None]] = {}

    def ahead_of(self, asset: Asset) -> list[asyncio.Task[None]]:
        """Return the tasks that must end before a request about the asset may begin."""
        whole = [] if self.whole is None else [self.whole]
        if len(asset) == _STREAM_PARTS:
            return whole + list(self.consumers.values())
        return [self.consumers[asset]] if asset in self.consumers else whole

    def append(self, asset: Asset, task: asyncio.Task[None]) -> None:
        """Note the task as the last one about the asset."""
        if len(asset) == _STREAM_PARTS:
            self.whole = task
            self.consumers.clear()  # the new task waits for them
        else:
            self.consumers[asset] = task

    def remove(self, asset: Asset, task: asyncio.Task[None]) -> bool:
        """Forget a task that has ended; return whether no task is left."""
        if self.whole is task:
            self.whole = None
        if self.consumers.get(asset) is task:
            del self.consumers[asset]
        return self.whole is None and not self.consumers


class WaitingRequests:
    """Queue of one kind of requests, used on one event loop only.

    `dropped(count)` is called when that many waiting requests were dropped.
    """

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
        """Queue `work`, which must not raise."""
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
        """Drop the waiting requests, and wait until the running ones have ended."""
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
