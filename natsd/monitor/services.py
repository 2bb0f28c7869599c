"""Monitoring over NATS: `$SYS.REQ.…` in the system account, and some of it in every account.

    $SYS.REQ.SERVER.PING.CONNZ ──▶ waiting ──▶ Replies (service_replies.py) ──▶ answer
      in an account: about that account only

- The served subjects are those of the tables in service_table.py. A request on any other subject is
  answered "no responders" at once.
- Accounts that are added or removed while the server runs gain and lose their services with that.
- A server without a system account serves nothing.
- One request is answered at a time, except for those that wait for other servers or take long, of
  which `SLOW_AT_ONCE` are. At most `WAITING_MAX` requests of the system account wait,
  which go first, and as many of all other accounts together; of one account `WAITING_OF_ONE_MAX`.
  A further request is not answered: so no account can keep others from their answers for long.
- The modules that answer are imported with the first request, so that they do not slow the start.

Source: nats-server's `Server.initEventTracking`.
"""

import asyncio
import importlib
import logging
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from natsd.accounts import Account
from natsd.core.network import Session
from natsd.core.routing import Subscription
from natsd.monitor.service_table import (
    PRIVATE,
    SLOW,
    WITHOUT_REPLY,
    ServiceRequest,
    account_subjects,
    system_subjects,
)

if TYPE_CHECKING:
    from natsd.monitor.observed import ObservedServer
    from natsd.monitor.service_replies import Replies

_logger = logging.getLogger("natsd.monitor")

WAITING_MAX: Final = 256
WAITING_OF_ONE_MAX: Final = 64
SLOW_AT_ONCE: Final = 64
"""Requests that are answered beside the others; more of them make the others wait."""

Reload = Callable[[], object]
"""Reloads the configuration file, at once or as an awaitable; an exception says why not."""


class Waiting:
    """The requests that wait for their answers: those of the system account go first."""

    def __init__(self) -> None:
        self._of_system: deque[ServiceRequest] = deque()
        self._of_others: deque[ServiceRequest] = deque()
        self._counts: Counter[Account] = Counter()

    def __len__(self) -> int:
        return len(self._of_system) + len(self._of_others)

    def is_full_for(self, account: Account) -> bool:
        """Return whether there is no room for another request of the account."""
        if account.is_system:
            return len(self._of_system) >= WAITING_MAX
        return len(self._of_others) >= WAITING_MAX or self._counts[account] >= WAITING_OF_ONE_MAX

    def add(self, request: ServiceRequest) -> None:
        """Append a request."""
        if request.account.is_system:
            self._of_system.append(request)
        else:
            self._of_others.append(request)
            self._counts[request.account] += 1

    def take(self) -> ServiceRequest:
        """Remove the next request and return it."""
        if self._of_system:
            return self._of_system.popleft()
        request = self._of_others.popleft()
        self._counts[request.account] -= 1
        if not self._counts[request.account]:
            del self._counts[request.account]
        return request

    def clear(self) -> None:
        """Remove all requests."""
        self._of_system.clear()
        self._of_others.clear()
        self._counts.clear()


class Services:
    """The services of one server, from `start` to `close`."""

    def __init__(self, server: "ObservedServer", reload: Reload | None = None) -> None:
        """Serve nothing yet; `reload` None: the server has no configuration file."""
        self._server = server
        self._reload = reload
        self._subscriptions: dict[Account, list[Subscription]] = {}
        self._waiting = Waiting()
        self._working: asyncio.Task[None] | None = None
        self._slow: set[asyncio.Task[None]] = set()
        self._replies: Replies | None = None

    def start(self) -> None:
        """Subscribe to the requests and answer them, if the server has a system account."""
        accounts = self._server.accounts
        if not accounts.has_system:
            return
        system = accounts.system
        for subject, kind in system_subjects(self._server.id):
            self._serve(system, subject, kind)
        for account in accounts.values():
            if account is not system:
                self._serve_account(account)
        accounts.on_added(self._serve_account)
        accounts.on_removed(self._forget_account)

    async def close(self) -> None:
        """Unsubscribe, and drop the requests that wait."""
        self._server.accounts.no_longer(self._serve_account)
        self._server.accounts.no_longer_removed(self._forget_account)
        for account in tuple(self._subscriptions):
            self._forget_account(account)
        self._waiting.clear()
        tasks = [*self._slow, *filter(None, [self._working])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._working = self._replies = None

    def _serve_account(self, account: Account) -> None:
        """Serve the requests that an account may send about itself."""
        for subject, kind in account_subjects():
            self._serve(account, subject, kind, about=account.name)

    def _forget_account(self, account: Account) -> None:
        """End the services of an account."""
        for subscription in self._subscriptions.pop(account, ()):
            account.internal_client.unsubscribe(subscription)

    def _serve(self, account: Account, subject: str, kind: str, *, about: str = "") -> None:
        receive = partial(self._receive, account, kind, about)
        is_private = bool(about) or kind in PRIVATE
        served = account.internal_client.serve(subject, receive, is_private=is_private)
        self._subscriptions.setdefault(account, []).append(served)

    def _receive(
        self,
        account: Account,
        kind: str,
        about: str,
        subject: str,
        reply: str | None,
        headers: bytes,
        data: bytes,
        origin: Session | None,
    ) -> None:
        """Queue a request; it is dropped if too many wait.

        A request without a reply subject is dropped too, unless it has an effect; and so is one for
        a count that this server sent to the others.
        """
        if (reply is None and kind not in WITHOUT_REPLY) or (kind == "NSUBS" and origin is None):
            return
        if self._waiting.is_full_for(account):
            _logger.debug("System services: %s is not answered, too many requests wait", subject)
            return
        if kind.startswith("ACCOUNT.") and not about:
            about = subject.split(".")[3]
        self._waiting.add(ServiceRequest(kind, about, account, reply or "", headers, data, origin))
        if self._working is None:
            self._working = asyncio.create_task(self._work(), name="natsd-services")

    async def _work(self) -> None:
        """Answer the waiting requests, one by one."""
        try:
            replies = await self._load()
            while self._waiting:
                request = self._waiting.take()
                is_slow = request.kind in SLOW or (request.is_for_all and self._has_peers)
                if is_slow and len(self._slow) < SLOW_AT_ONCE:
                    task = asyncio.create_task(self._reply(replies, request), name="natsd-service")
                    self._slow.add(task)
                    task.add_done_callback(self._slow.discard)
                else:
                    await self._reply(replies, request)
        finally:
            self._working = None

    @property
    def _has_peers(self) -> bool:
        cluster = self._server.cluster
        return cluster is not None and bool(cluster.table.pooled)

    async def _reply(self, replies: "Replies", request: ServiceRequest) -> None:
        try:
            await replies.reply(request)
        except Exception:
            _logger.exception("System services: a request for %s failed", request.kind)

    async def _load(self) -> "Replies":
        if self._replies is None:
            await asyncio.to_thread(importlib.import_module, "natsd.monitor.service_replies")
            from natsd.monitor.service_replies import Replies

            self._replies = Replies(self._server, self._reload)
        return self._replies
