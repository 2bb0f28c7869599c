"""A server with configured accounts, in which each user has the account of its name."""

from __future__ import annotations

from typing import Any

import nats
from nats.aio.client import Client as NatsClient

from natsd import Server
from natsd.accounts import AccountDirectory
from natsd.auth.verdict import Verdict
from natsd.clients import Client
from natsd.clients.connect import ConnectOptions

QUIET = {"host": "127.0.0.1", "port": -1}


class ByUser:
    """Each user has the account of its name."""

    is_required = True
    needs_nonce = False

    def authenticate(self, client: Client, connect: ConnectOptions) -> Verdict:
        return Verdict(connect.user)


class AccountsServer(Server):
    """A server with the accounts of its options; `$SYS` is the system account."""

    def __init__(self, accounts: dict[str, Any], **settings: Any) -> None:
        super().__init__(authenticator=ByUser(), accounts=accounts, **QUIET, **settings)

    def _build(self) -> None:
        super()._build()
        self.accounts = AccountDirectory(
            self._make_account, may_create=lambda name: name in self.options.accounts
        )
        for name in self.options.accounts:
            self.accounts.find(name)


async def log_in(server: Server, account: str) -> NatsClient:
    """Return a client in the account of that name."""
    return await nats.connect(server.client_url, user=account, password="-")
