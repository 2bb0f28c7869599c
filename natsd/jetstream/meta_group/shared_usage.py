"""Shared usage: the servers of a cluster tell each other how many bytes their accounts use.

    each server, every TOLD_EVERY_S ── $JSC.USAGE: {account: {tier: [memory, file]}} ──▶ all others
    SharedUsage, on the others ──▶ Usage.count_elsewhere ──▶ the check of a publish

- An account's limits hold for all servers together, so each counts what the others use, too. What
  a server tells is not older than TOLD_EVERY_S: that much more may be stored beyond a limit.
- Only accounts whose bytes are limited are told: when they use more or less than was told last,
  when a server comes, and every TOLD_AGAIN_S, in case that a message was lost.
- A server that begins to serve or to limit an account `asks` for what the others use, as it does
  for all accounts when it hears of another server for the first time.
- What a server has used counts until it tells something else, is removed from the cluster, or has
  told nothing for FORGOTTEN_AFTER_S. So a restart of a server makes no room.

Promise
- What others send is bounded here: servers that are members, accounts that are served here, tiers
  that the account has here. All else is ignored, as is what cannot be read.
- A turn looks at ACCOUNTS_AT_ONCE accounts at most, and sends one message at most.

Source: nats-server's `sendClusterUsageUpdate` and `remoteUpdateUsage` (server/jetstream.go), which
keeps what a server has used for ever.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta, Struct

from natsd.accounts.internal_client import InternalClient
from natsd.core.routing import Subscription
from natsd.jetstream.account_resources import AccountResources

_logger = logging.getLogger(__name__)

SUBJECT: Final = "$JSC.USAGE"
TOLD_EVERY_S: Final = 0.25
TOLD_AGAIN_S: Final = 30.0
FORGOTTEN_AFTER_S: Final = 300.0
ACCOUNTS_AT_ONCE: Final = 1000
BYTES_MAX: Final = 1 << 62
"""Most bytes that are counted of an account: what others tell may be nonsense."""

Bytes: TypeAlias = Annotated[int, Meta(ge=0, le=BYTES_MAX)]
Use: TypeAlias = dict[str, tuple[Bytes, Bytes]]
"""Bytes in memory and in files, by tier; a tier that uses nothing is left out."""


class Told(Struct, frozen=True, omit_defaults=True):
    """What a server tells of its accounts."""

    server: str
    accounts: dict[str, Use]
    asks: list[str] = []  # accounts of which it does not know yet what the others use


_told = msgspec.json.Decoder(Told)


class Heard(NamedTuple):
    """What another server uses of an account."""

    use: Use
    at_s: float


class UseElsewhere:
    """What other servers use, as they told last; knows no clock."""

    def __init__(self) -> None:
        # server ─▶ account, in the order in which they were heard of
        self._heard: defaultdict[str, dict[str, Heard]] = defaultdict(dict)

    def take(self, server: str, account: str, use: Use, now_s: float) -> None:
        """Take note of what a server uses of an account."""
        heard = self._heard[server]
        heard.pop(account, None)
        if use:
            heard[account] = Heard(use, now_s)

    def of(self, account: str, tier: str) -> tuple[int, int]:
        """Return the bytes in memory and in files that all servers use together."""
        memory = file = 0
        for heard in self._heard.values():
            if account in heard:
                more = heard[account].use.get(tier, (0, 0))
                memory, file = memory + more[0], file + more[1]
        return min(memory, BYTES_MAX), min(file, BYTES_MAX)

    def forget(self, account: str) -> None:
        """Forget what servers use of an account."""
        for heard in self._heard.values():
            heard.pop(account, None)

    def forget_old(self, now_s: float, is_member: Callable[[str], bool]) -> Iterator[str]:
        """Forget servers that are no members, and what is too old; yield the accounts."""
        for server in [each for each in self._heard if not is_member(each)]:
            yield from self._heard.pop(server)
        for heard in self._heard.values():
            while heard:
                account = next(iter(heard))
                if now_s - heard[account].at_s < FORGOTTEN_AFTER_S:
                    break
                del heard[account]
                yield account


class SharedUsage:
    """What this server tells of its accounts, and what it counts because of the others."""

    def __init__(
        self,
        server: str,
        accounts: Mapping[str, AccountResources],
        client: InternalClient,
        is_member: Callable[[str], bool],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Use `client`, which is that of the system account.

        `accounts` are those that are served here; `is_member` says whether a server belongs to the
        cluster.
        """
        self._server = server
        self._accounts = accounts
        self._client = client
        self._is_member = is_member
        self._loop = loop
        self._elsewhere = UseElsewhere()
        self._told: dict[str, Heard] = {}  # what this server told last
        self._round: list[str] = []  # accounts that are looked at in the next turns
        self._timer: asyncio.TimerHandle | None = None
        self._subscription: Subscription | None = None

    def start(self) -> None:
        """Begin to tell and to listen."""
        self._subscription = self._client.subscribe(SUBJECT, self._receive)
        self._on_timer()

    def close(self) -> None:
        """Tell nothing more, and count what was heard of last."""
        if self._timer is not None:
            self._timer.cancel()
        if self._subscription is not None:
            self._client.unsubscribe(self._subscription)

    def exchange(self) -> None:
        """Tell of all accounts soon, and ask for what others use: a server has come."""
        self._told.clear()

    def limits_changed(self, account: AccountResources) -> None:
        """Ask the others for what they use of an account with new limits, and count anew."""
        self._told.pop(account.name, None)
        self._count(account)

    def account_left(self, name: str) -> None:
        """Tell that nothing is used of an account that is not served any more."""
        self._elsewhere.forget(name)
        if self._told.pop(name, None) is not None:
            self._publish(Told(self._server, {name: {}}))

    # ---- telling

    def _on_timer(self) -> None:
        self._timer = self._loop.call_later(TOLD_EVERY_S, self._on_timer)
        self._tell_changes()
        self._recount(self._elsewhere.forget_old(self._loop.time(), self._is_member))

    def _tell_changes(self) -> None:
        now_s = self._loop.time()
        said: dict[str, Use] = {}
        asks: list[str] = []
        for account in self._next_accounts():
            use, told = use_of(account), self._told.get(account.name)
            if told is None:
                asks.append(account.name)
            elif told.use == use and now_s - told.at_s < TOLD_AGAIN_S:
                continue
            said[account.name] = use
            self._told[account.name] = Heard(use, now_s)
        if said:
            self._publish(Told(self._server, said, asks))

    def _next_accounts(self) -> Iterator[AccountResources]:
        """Yield the accounts with limits, all of them in as many turns as that takes."""
        if not self._round:
            self._round = [each.name for each in self._accounts.values() if each.tiers.limits_bytes]
        names, self._round = self._round[:ACCOUNTS_AT_ONCE], self._round[ACCOUNTS_AT_ONCE:]
        for name in names:
            account = self._accounts.get(name)
            if account is not None:
                yield account

    def _tell_again(self, account: str) -> None:
        if account in self._told:
            self._told[account] = self._told[account]._replace(at_s=-TOLD_AGAIN_S)

    def _publish(self, told: Told) -> None:
        self._client.publish(SUBJECT, msgspec.json.encode(told))

    # ---- listening

    def _receive(self, _subject: str, _reply: str | None, _headers: bytes, data: bytes) -> None:
        try:
            said = _told.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            _logger.warning("JetStream: what a server uses is not understood: %s", error)
            return
        if said.server == self._server or not self._is_member(said.server):
            return
        for name, use in said.accounts.items():
            account = self._accounts.get(name)
            if account is None:
                continue
            known = {tier.name: use[tier.name] for tier in account.tiers if tier.name in use}
            self._elsewhere.take(said.server, name, known, self._loop.time())
            self._count(account)
        for name in said.asks:
            self._tell_again(name)

    def _recount(self, names: Iterable[str]) -> None:
        for name in names:
            account = self._accounts.get(name)
            if account is not None:
                self._count(account)

    def _count(self, account: AccountResources) -> None:
        for tier in account.tiers:
            memory, file = self._elsewhere.of(account.name, tier.name)
            tier.usage.count_elsewhere(memory=memory, file=file)


def use_of(account: AccountResources) -> Use:
    """Return what an account uses on this server."""
    used = {
        tier.name: (max(tier.usage.memory_used, 0), max(tier.usage.file_used, 0))
        for tier in account.tiers
    }
    return {tier: size for tier, size in used.items() if any(size)}
