"""The subjects on which the system account sends API requests for any account: for backups.

    $SYS.REQ.ACCOUNT.<account>.JS.API.STREAM.SNAPSHOT.<stream>
                               └ the account's own request $JS.API.STREAM.SNAPSHOT.<stream>

Promise
- Only the subjects of `REQUESTS` are served; a request on any other one is answered "no responders"
  at once.
- Answers, and the chunks of snapshots and restores, pass through the system account. A request is
  carried out, counted, audited and bounded like one of the account itself.
- An account's name is one token: bytes that a token cannot hold, dots and `%` are percent-encoded.
"""

from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from natsd.accounts import Account
from natsd.core.network import Session
from natsd.core.routing import Subscription
from natsd.jetstream.names import API_PREFIX

PREFIX: Final = "$SYS.REQ.ACCOUNT."
API: Final = ".JS.API."
REQUESTS: Final = (
    *("STREAM.NAMES", "STREAM.INFO.*", "STREAM.CREATE.*", "STREAM.DELETE.*"),
    *("STREAM.SNAPSHOT.*", "STREAM.RESTORE.*"),
)

AccountService = Callable[[str, str, str | None, bytes, bytes, Session | None], object]
"""Callback with the account's name, the subject within it, reply, headers, data and origin."""


class AllAccounts:
    """The subscriptions in the system account, from the creation to `close`."""

    def __init__(self, system: Account, service: AccountService) -> None:
        self._system = system
        self._service = service
        subjects = [f"{PREFIX}*{API}{request}" for request in REQUESTS]
        self._subscriptions: list[Subscription] = system.internal_client.serve_all(
            subjects, self._receive
        )

    def close(self) -> None:
        """Unsubscribe."""
        for subscription in self._subscriptions:
            self._system.internal_client.unsubscribe(subscription)
        self._subscriptions.clear()

    def _receive(
        self,
        subject: str,
        reply: str | None,
        headers: bytes,
        data: bytes,
        origin: Session | None,
    ) -> None:
        account, _, request = subject.removeprefix(PREFIX).partition(API)
        self._service(unquote(account), f"{API_PREFIX}.{request}", reply, headers, data, origin)
