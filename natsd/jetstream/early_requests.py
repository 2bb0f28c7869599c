"""Requests that arrive before JetStream serves their account: it is imported or recovers streams.

    INFO ─▶ $JS.API.STREAM.CREATE.S ─▶ held here ─▶ JetStream is ready ─▶ Router (api/router.py)

A server with an empty store accepts clients before it imports JetStream, since there is nothing to
recover; and JetStream may be enabled for an account whose clients are connected. This module
imports only what such a start has imported already.

Promise
- The router gets the requests in the order of arrival, with their clients, and before any request
  that arrives later.
- At most `REQUESTS_MAX` requests and `BYTES_MAX` bytes wait in all accounts together. One more
  drops those of the account with the most bytes, as a full queue of the router does.
- No stream is served yet, so a request to one (a pull, a direct get) finds no responders.
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


class _Held:
    """What an account has received, and its subscriptions."""

    __slots__ = ("requests", "size", "subscriptions")

    def __init__(self, subscriptions: list[Subscription]) -> None:
        self.subscriptions = subscriptions
        self.requests = deque[EarlyRequest]()
        self.size = 0  # bytes of the requests


class EarlyRequests:
    """The requests to the accounts of a server, each from `hold` until `hand_over`."""

    def __init__(self, domain: str) -> None:
        self._prefix = domain_api_prefix(domain) if domain else ""
        self._held: dict[Account, _Held] = {}
        self._answers: dict[Account, Answer] = {}
        self._count = 0  # requests of all accounts
        self._size = 0  # their bytes

    def hold(self, account: Account) -> None:
        """Hold the account's requests from now on, if they are not held already."""
        if account in self._held:
            return
        self._answers.pop(account, None)
        subjects = [f"{API_PREFIX}.>"]
        if self._prefix:
            subjects += [f"{self._prefix}.{space}" for space in ("INFO", *DOMAIN_SPACES)]
        receive = partial(self._receive, account)
        self._held[account] = _Held(account.internal_client.serve_all(subjects, receive))

    def hand_over(self, account: Account, answer: Answer) -> None:
        """Give the account's requests to `answer`, which must not raise, and hold no more."""
        held = self._end(account)
        if held is not None:
            self._answers[account] = answer  # for requests that are received, but not yet held
            for request in held.requests:
                answer(request)

    def forget(self, account: Account) -> None:
        """Drop everything about the account."""
        self._answers.pop(account, None)
        self._end(account)

    def _end(self, account: Account) -> _Held | None:
        held = self._held.pop(account, None)
        if held is not None:
            for subscription in held.subscriptions:
                account.internal_client.unsubscribe(subscription)
            self._count -= len(held.requests)
            self._size -= held.size
        return held

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
        elif account in self._held:
            self._add(self._held[account], request)
        elif account in self._answers:
            self._answers[account](request)

    def _is_for_an_asset(self, subject: str) -> bool:
        prefixes = (API_PREFIX, self._prefix) if self._prefix else (API_PREFIX,)
        return any(
            subject.startswith(f"{prefix}.{space}") for prefix in prefixes for space in ASSET_SPACES
        )

    def _add(self, held: _Held, request: EarlyRequest) -> None:
        held.requests.append(request)
        held.size += request.size
        self._count += 1
        self._size += request.size
        if self._count > REQUESTS_MAX or self._size > BYTES_MAX:
            self._drop(max(self._held.values(), key=lambda each: each.size))

    def _drop(self, held: _Held) -> None:
        count = len(held.requests)
        _logger.warning("JetStream API queue limit reached, dropping %d requests", count)
        self._count -= count
        self._size -= held.size
        held.requests.clear()
        held.size = 0


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
