"""Requests that arrive while JetStream's modules are still being imported.

    INFO ─▶ $JS.API.STREAM.CREATE.S ─▶ held here ─▶ JetStream is ready ─▶ Router (api/router.py)

A server with an empty store accepts clients before it imports JetStream, since there is nothing to
recover. This module imports only what such a start has imported already.

Promise
- The router gets the requests in the order of arrival, with their clients, and before any request
  that arrives later.
- At most `REQUESTS_MAX` requests and `BYTES_MAX` bytes wait in all accounts together. One more
  drops all of them, as a full queue of the router does.
- There are no streams yet, so a request to one (a pull, a direct get) finds no responders.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from natsd.accounts import Account
from natsd.core.network import ClientSession, Session
from natsd.core.routing import InvalidSubject, Subscription
from natsd.jetstream.names import API_PREFIX, ASSET_SPACES, DOMAIN_SPACES, domain_api_prefix

_logger = logging.getLogger("natsd.jetstream")

REQUESTS_MAX: Final = 1_000
"""As many as the router takes in a turn of the event loop."""
BYTES_MAX: Final = 32 << 20
_NO_RESPONDERS: Final = "NATS/1.0 503\r\nNats-Subject: {subject}\r\n\r\n"


@dataclass(frozen=True, slots=True)
class EarlyRequest:
    """A request as it was received; `origin` is None if the server itself sent it."""

    account: Account
    subject: str
    reply: str | None
    headers: bytes
    data: bytes
    origin: Session | None

    @property
    def size(self) -> int:
        """Bytes of the subjects, the headers and the body."""
        return len(self.subject) + len(self.reply or "") + len(self.headers) + len(self.data)


Answer = Callable[[EarlyRequest], object]


class EarlyRequests:
    """The requests to all accounts of a server, from `hold` until `hand_over`."""

    def __init__(self, domain: str) -> None:
        self._prefix = domain_api_prefix(domain) if domain else ""
        self._waiting: deque[EarlyRequest] = deque()
        self._waiting_bytes = 0
        self._subscriptions: dict[Account, list[Subscription]] = {}
        self._answers: dict[Account, Answer] = {}

    def hold(self, account: Account) -> None:
        """Hold the account's requests from now on."""
        subjects = [f"{API_PREFIX}.>"]
        if self._prefix:
            subjects += [f"{self._prefix}.{space}" for space in ("INFO", *DOMAIN_SPACES)]
        receive = partial(self._receive, account)
        self._subscriptions[account] = [
            account.internal_client.serve(subject, receive) for subject in subjects
        ]

    def hand_over(self, account: Account, answer: Answer) -> None:
        """Give the account's requests to `answer`, which must not raise, and hold no more."""
        for subscription in self._subscriptions.pop(account, ()):
            account.internal_client.unsubscribe(subscription)
        self._answers[account] = answer  # for requests that are received, but not yet held
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            if request.account is account:
                self._waiting_bytes -= request.size
                answer(request)
            else:
                self._waiting.append(request)

    def _receive(
        self,
        account: Account,
        subject: str,
        reply: str | None,
        headers: bytes,
        data: bytes,
        origin: Session | None,
    ) -> None:
        request = EarlyRequest(account, subject, reply, headers, data, origin)
        if self._is_for_an_asset(subject):
            _refuse(request)
        elif account in self._answers:
            self._answers[account](request)
        else:
            self._add(request)

    def _is_for_an_asset(self, subject: str) -> bool:
        prefixes = (API_PREFIX, self._prefix) if self._prefix else (API_PREFIX,)
        return any(
            subject.startswith(f"{prefix}.{space}") for prefix in prefixes for space in ASSET_SPACES
        )

    def _add(self, request: EarlyRequest) -> None:
        self._waiting.append(request)
        self._waiting_bytes += request.size
        if len(self._waiting) > REQUESTS_MAX or self._waiting_bytes > BYTES_MAX:
            _logger.warning(
                "JetStream API queue limit reached, dropping %d requests", len(self._waiting)
            )
            self._waiting.clear()
            self._waiting_bytes = 0


def _refuse(request: EarlyRequest) -> None:
    """Answer that nobody responds, if the client wants to know."""
    origin = request.origin
    if request.reply is None or (isinstance(origin, ClientSession) and not origin.no_responders):
        return
    status = _NO_RESPONDERS.format(subject=request.subject).encode("utf-8", "surrogateescape")
    try:
        request.account.internal_client.publish(request.reply, headers=status)
    except InvalidSubject:
        return
