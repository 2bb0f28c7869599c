"""The accounts that JetStream serves: each is enabled, changed and disabled at run time.

    configure_account ─┬─ not served yet ─▶ recovered ─▶ its requests are answered
                       ├─ served         ─▶ its limits change
                       └─ no limits      ─▶ its streams are closed ─▶ its requests are refused

Promise
- Each account undergoes one change at a time; different accounts change concurrently.
- No request is lost by a change: requests wait while an account is enabled or disabled.
- No change deletes a file: only the delete of a stream and the purge of an account do.

Source: nats-server's `configJetStream`, `UpdateJetStreamLimits` and `DisableJetStream`.
"""

import asyncio
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from natsd.accounts import Account
from natsd.config.jetstream_options import JetStreamOptions
from natsd.core.network import Reactor
from natsd.core.quoting import quoted
from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.account_resources import why_no_directory
from natsd.jetstream.api.router import Router
from natsd.jetstream.early_requests import EarlyRequests
from natsd.jetstream.meta import Change, Meta
from natsd.jetstream.recovery import check_keys, recover_accounts
from natsd.jetstream.resources import NO_BYTES, PromisedBytes, check_promised
from natsd.jetstream.server_resources import ServerResources
from natsd.jetstream.stream.files import AccountFiles
from natsd.jetstream.tiers import AccountTiers

if TYPE_CHECKING:
    from natsd.jetstream.meta_group.cluster import JetStreamCluster


class AccountNameError(Exception):
    """JetStream cannot serve an account of that name; the text is one line for the user."""


class ServedAccounts(ServerResources):
    """The accounts that JetStream serves, by name; used on the server's event loop only."""

    def __init__(
        self,
        options: JetStreamOptions,
        reactor: Reactor,
        loop: asyncio.AbstractEventLoop,
        *,
        server_name: str = "",
        server_id: str = "",
        clock: Callable[[], int] = time.time_ns,
        random_bytes: Callable[[int], bytes] = os.urandom,
        early: EarlyRequests | None = None,
    ) -> None:
        """Serve no account yet; `early` holds the requests that the accounts received before."""
        super().__init__(
            options,
            reactor,
            loop,
            server_name=server_name,
            server_id=server_id,
            clock=clock,
            random_bytes=random_bytes,
        )
        self._keys_are_right = False
        self.accounts: dict[str, JetStreamAccount] = {}
        self.meta = Meta(self._apply)
        self.api = Router(self, self.accounts, early)
        self.cluster: JetStreamCluster | None = None  # None: this server is in none

    def make_account(self, account: Account, limits: AccountTiers) -> JetStreamAccount:
        """Return the account with these limits, without streams. Raises AccountNameError."""
        if reason := why_no_directory(account.name):
            raise AccountNameError(f"JetStream of account {quoted(account.name)}: {reason}")
        return JetStreamAccount(self, account, limits)

    async def configure_account(self, account: Account, limits: AccountTiers | None) -> None:
        """Enable, change or disable JetStream of an account; empty limits disable it.

        None disables it too, and leaves the account's requests to others: it imports them.

        - Enabling recovers what is stored, and returns when it is served.
        - Limits below what is used are no error: what exists stays, and more is refused.
        - Disabling closes the streams; requests are answered 10039. Files stay, and are served
          again when JetStream is enabled again; memory streams are gone, as on nats-server.

        Raises ApiError 10028 or 10047 if the server has less than all accounts may use together:
        the account then keeps its limits. Raises AccountNameError, EncryptionError, OSError.
        """
        if not limits:
            await self.disable_account(account)
            self.refuse(account, limits)
            return
        async with self.configuring(account.name):
            served = self.accounts.get(account.name)
            if served is not None and served.account is not account:
                await self._disable(served)
                served = None
            if served is None:
                await self._enable(account, limits)
            else:
                self._check_promised(account.name, limits)
                served.change_limits(limits)
                if self.cluster is not None:
                    self.cluster.usage.limits_changed(served)

    async def disable_account(self, account: Account) -> None:
        """Close the account's streams; its requests wait until they are refused or served again."""
        async with self.configuring(account.name):
            served = self.accounts.get(account.name)
            if served is not None and served.account is account:
                await self._disable(served)

    def refuse(self, account: Account, limits: AccountTiers | None) -> None:
        """Refuse the account's requests, or leave them to others if `limits` is None."""
        if limits is None:
            self.api.forget(account)
        else:
            self.api.refuse(account)

    async def remove_account(self, account: Account) -> None:
        """Disable JetStream of an account that is being removed; its files stay on disk.

        Only a purge of the account ($JS.API.ACCOUNT.PURGE) deletes its files.
        """
        await self.disable_account(account)
        self.api.forget(account)

    async def _enable(self, account: Account, limits: AccountTiers) -> None:
        try:
            self._check_promised(account.name, limits)
            served = self.make_account(account, limits)
            await self.check_keys([served.files])
        except BaseException:
            self.api.refuse(account)
            raise
        self.accounts[account.name] = served
        try:
            await recover_accounts([served], are_assigned=self.cluster is not None)
        except BaseException:
            await self._disable(served)
            self.api.refuse(account)
            raise
        self.api.serve(served)
        await served.begin_sourcing()
        if self.cluster is not None:
            self.cluster.account_served(served)

    async def _disable(self, served: JetStreamAccount) -> None:
        served.is_closed = True
        self.api.hold(served.account)
        await self.api.settle(served.name)
        if self.cluster is not None:
            await self.cluster.account_left(served)
        del self.accounts[served.name]
        await served.close()

    def _check_promised(self, name: str, limits: AccountTiers) -> None:
        """Check that the server has what its accounts may use together. Raises ApiError."""
        promised = [account.promised for account in self.accounts.values()]
        before = PromisedBytes(
            sum(each.memory for each in promised), sum(each.storage for each in promised)
        )
        served = self.accounts.get(name)
        change = PromisedBytes.of(limits.values()) - (
            NO_BYTES if served is None else served.promised
        )
        check_promised(self.usage, before + change, before)

    async def check_keys(self, accounts: list[AccountFiles]) -> None:
        """Check the keys until they have opened one stream. Raises EncryptionError."""
        if accounts and not self._keys_are_right:
            self._keys_are_right = await self.volume.read(check_keys, self.vault, accounts)

    async def _apply(self, change: Change) -> None:
        await self.accounts[change.account].apply(change)
