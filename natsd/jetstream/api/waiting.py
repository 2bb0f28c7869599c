"""Queue of requests: a limited number runs at once, and accounts take turns.

    add ──▶ waiting, by account ──▶ at most `at_once` tasks ──▶ each behind those about its asset
                                    (an account without a task may always start one)

Promise
- Requests about an asset are carried out in the order of arrival: a request about a whole stream
  waits for all earlier ones about the stream or one of its consumers, and later ones wait for it;
  requests about different consumers of a stream run concurrently.
- No account waits for another account's requests: a free place goes to the next account in turn,
  and an account of which nothing runs need not wait for a place. So at most `at_once` tasks run,
  and one more for each account.
- When `limit` requests wait, those of the account with the most are dropped: clients that get no
  answer in time ask again, and a request should not wait behind requests whose clients have given
  up. nats-server has no turns, and drops the requests of all accounts.

Source: nats-server's `processJSAPIRoutedRequests` and its limit `JSDefaultRequestQueueLimit`.
"""

import asyncio
from collections import OrderedDict, deque
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


class _AccountRequests:
    """The requests of one account that wait or run."""

    __slots__ = ("running", "waiting")

    def __init__(self) -> None:
        self.waiting = deque[tuple[Asset, Work]]()
        self.running: set[asyncio.Task[None]] = set()


class WaitingRequests:
    """Queue of one kind of requests, used on one event loop only.

    `dropped(account, count)` is called when that many waiting requests of an account were dropped.
    """

    def __init__(self, limit: int, at_once: int, dropped: Callable[[str, int], object]) -> None:
        self._limit = limit
        self._at_once = at_once
        self._dropped = dropped
        self._accounts: dict[str, _AccountRequests] = {}  # those with requests
        self._turns = OrderedDict[str, None]()  # accounts with waiting requests, the next one first
        self._waiting = 0
        self._running = 0
        self._order: dict[Asset, _StreamOrder] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return self._waiting

    def add(self, account: str, asset: Asset, work: Work) -> None:
        """Queue `work`, which must not raise, for the account."""
        if self._is_closed:
            return
        requests = self._accounts.setdefault(account, _AccountRequests())
        if not requests.waiting:
            self._turns[account] = None
        requests.waiting.append((asset, work))
        self._waiting += 1
        if self._running < self._at_once or not requests.running:
            del self._turns[account]
            self._start_next(account)
        elif self._waiting >= self._limit:
            self._drop_most()

    async def settle(self, account: str) -> None:
        """Wait until the requests of the account that run now have ended."""
        requests = self._accounts.get(account)
        if requests is not None and requests.running:
            await asyncio.wait(set(requests.running))

    async def close(self) -> None:
        """Drop the waiting requests, and wait until the running ones have ended."""
        self._is_closed = True
        self._turns.clear()
        self._waiting = 0
        for requests in self._accounts.values():
            requests.waiting.clear()
        for account in list(self._accounts):
            await self.settle(account)

    def _start_next(self, account: str) -> None:
        """Start the account's first waiting request; the account goes to the end of the turns."""
        requests = self._accounts[account]
        asset, work = requests.waiting.popleft()
        self._waiting -= 1
        if requests.waiting:
            self._turns[account] = None
        if not asset:
            task = asyncio.create_task(work())
        else:
            order = self._order.setdefault(asset[:_STREAM_PARTS], _StreamOrder())
            task = asyncio.create_task(_behind(order.ahead_of(asset), work))
            order.append(asset, task)
        self._running += 1
        requests.running.add(task)
        task.add_done_callback(lambda task: self._ended(account, asset, task))

    def _ended(self, account: str, asset: Asset, task: asyncio.Task[None]) -> None:
        self._running -= 1
        requests = self._accounts[account]
        requests.running.discard(task)
        stream = asset[:_STREAM_PARTS]
        if asset and self._order[stream].remove(asset, task):
            del self._order[stream]
        if requests.waiting and not requests.running:
            del self._turns[account]
            self._start_next(account)
        elif not requests.waiting and not requests.running:
            del self._accounts[account]
        while self._turns and self._running < self._at_once:
            self._start_next(self._turns.popitem(last=False)[0])

    def _drop_most(self) -> None:
        """Drop the waiting requests of the account with the most of them."""
        account = max(self._turns, key=lambda name: len(self._accounts[name].waiting))
        requests = self._accounts[account]
        count = len(requests.waiting)
        requests.waiting.clear()
        del self._turns[account]
        self._waiting -= count
        self._dropped(account, count)


async def _behind(ahead: list[asyncio.Task[None]], work: Work) -> None:
    if ahead:
        await asyncio.wait(ahead)
    await work()
