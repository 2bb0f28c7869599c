"""Monitoring over NATS: `$SYS.REQ.…` in the system account, and some of it in every account.

    $SYS.REQ.SERVER.PING.CONNZ ──▶ waiting ──▶ Replies (service_replies.py) ──▶ answer
      in an account: about that account only

- The served subjects are those of the tables in service_table.py. A request on any other subject is
  answered "no responders" at once.
- One request is answered at a time, and at most `WAITING_MAX` wait; a further one is not answered.
- The modules that answer are imported with the first request, so that they do not slow the start.

Source: nats-server's `Server.initEventTracking`.
"""

import asyncio
import importlib
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from natsd.accounts import Account
from natsd.core.network import Session
from natsd.core.routing import Subscription
from natsd.monitor.service_table import (
    ACCOUNT_KINDS,
    ACTIONS,
    IMPORTS,
    SERVER_KINDS,
    ServiceRequest,
)

if TYPE_CHECKING:
    from natsd.monitor.observed import ObservedServer
    from natsd.monitor.service_replies import Replies

_logger = logging.getLogger("natsd.monitor")

WAITING_MAX: Final = 256


class Services:
    """The monitoring services of one server, from `start` to `close`."""

    def __init__(self, server: "ObservedServer") -> None:
        self._server = server
        self._subscriptions: list[tuple[Account, Subscription]] = []
        self._waiting: deque[ServiceRequest] = deque()
        self._working: asyncio.Task[None] | None = None
        self._replies: Replies | None = None

    def start(self) -> None:
        """Subscribe to the requests and answer them."""
        accounts = self._server.accounts
        system = accounts.system
        prefix = "$SYS.REQ.SERVER"
        self._serve(system, f"{prefix}.PING", "STATSZ")
        for kind in SERVER_KINDS:
            self._serve(system, f"{prefix}.PING.{kind}", kind)
            self._serve(system, f"{prefix}.{self._server.id}.{kind}", kind)
        for action in ACTIONS:
            self._serve(system, f"{prefix}.{self._server.id}.{action}", action)
        for kind in ACCOUNT_KINDS:
            self._serve(system, f"$SYS.REQ.ACCOUNT.*.{kind}", f"ACCOUNT.{kind}")
        self._serve(system, "$SYS.REQ.USER.INFO", "USER.INFO")
        self._serve(system, "$SYS.DEBUG.SUBSCRIBERS", "SUBSCRIBERS")
        for account in accounts.values():
            if account is not system:
                self._serve_imports(account)
        accounts.on_added(self._serve_imports)

    async def close(self) -> None:
        """Unsubscribe, and drop the requests that wait."""
        self._server.accounts.no_longer(self._serve_imports)
        for account, subscription in self._subscriptions:
            account.internal_client.unsubscribe(subscription)
        self._subscriptions.clear()
        self._waiting.clear()
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
            self._working = None
        self._replies = None

    def _serve_imports(self, account: Account) -> None:
        """Serve the requests that an account may send about itself."""
        for subject, imported, _ in IMPORTS:
            kind = imported.rpartition(".")[2]
            kind = "USER.INFO" if kind == "INFO" else f"ACCOUNT.{kind}"
            self._serve(account, subject, kind, about=account.name)

    def _serve(self, account: Account, subject: str, kind: str, *, about: str = "") -> None:
        receive = partial(self._receive, account, kind, about)
        self._subscriptions.append((account, account.internal_client.serve(subject, receive)))

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

        A request without a reply subject is dropped too, unless it is an action.
        """
        if reply is None and kind not in ACTIONS:
            return
        if len(self._waiting) >= WAITING_MAX:
            _logger.debug("System services: %s is not answered, too many requests wait", subject)
            return
        if kind.startswith("ACCOUNT.") and not about:
            about = subject.split(".")[3]
        self._waiting.append(
            ServiceRequest(kind, about, account, reply or "", headers, data, origin)
        )
        if self._working is None:
            self._working = asyncio.create_task(self._work(), name="natsd-services")

    async def _work(self) -> None:
        """Answer the waiting requests, one by one."""
        try:
            replies = await self._load()
            while self._waiting:
                request = self._waiting.popleft()
                try:
                    await replies.reply(request)
                except Exception:
                    _logger.exception("System services: a request for %s failed", request.kind)
        finally:
            self._working = None

    async def _load(self) -> "Replies":
        if self._replies is None:
            await asyncio.to_thread(importlib.import_module, "natsd.monitor.service_replies")
            from natsd.monitor.service_replies import Replies

            self._replies = Replies(self._server)
        return self._replies
