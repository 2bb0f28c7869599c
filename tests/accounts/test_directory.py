"""The directory of accounts: default, system, on demand; and what a new account gets."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client as NatsClient
from nats.errors import Error, NoRespondersError

from natsd import Server
from natsd.accounts import Account, AccountDirectory
from natsd.auth import Verdict
from natsd.clients import Client
from natsd.clients.connect import ConnectOptions
from natsd.core.network import Reactor
from tests.server.streams import DEADLINE_S
from tests.source.reading import ROOT


def directory(reactor: Reactor, **more: Any) -> AccountDirectory:
    return AccountDirectory(
        lambda name, is_system: Account(name, reactor, is_system=is_system),
        **more,
    )


async def test_the_first_two_accounts() -> None:
    reactor = Reactor(asyncio.get_running_loop(), print)
    accounts = directory(reactor, default="HOME", system="ROOT")
    assert list(accounts) == ["HOME", "ROOT"]
    assert (accounts.default.name, accounts.system.name) == ("HOME", "ROOT")
    assert [account.is_system for account in accounts.values()] == [False, True]
    assert accounts.find("$G") is None
    accounts.close()
    reactor.close()


async def test_accounts_on_demand() -> None:
    reactor = Reactor(asyncio.get_running_loop(), print)
    added: list[str] = []
    accounts = directory(reactor, may_create=lambda name: name.startswith("tenant-"), created_max=2)
    for name in ("", "..", "tenant-/../..", "tenant-\0", "tenant-a b"):
        assert accounts.find(name) is None
    accounts.on_added(lambda account: added.append(account.name))
    first = accounts.find("tenant-1")
    assert first is not None
    assert accounts.find("tenant-1") is first
    assert accounts.find("stranger") is None
    assert accounts.find("tenant-2") is accounts["tenant-2"]
    assert accounts.find("tenant-3") is None  # more than it may create
    assert added == ["tenant-1", "tenant-2"]
    accounts.close()
    reactor.close()


async def test_accounts_are_removed() -> None:
    reactor = Reactor(asyncio.get_running_loop(), print)
    removed: list[Account] = []
    accounts = directory(reactor, may_create=lambda name: True, created_max=1)
    accounts.on_removed(removed.append)
    first = accounts.find("A")
    assert first is not None
    first.internal_client.subscribe("a", print)
    for name in ("A", "A", "none", accounts.default.name, accounts.system.name):
        accounts.remove(name)
    assert removed == [first]
    assert first.sublist.count == 0
    assert list(accounts) == [accounts.default.name, accounts.system.name]
    assert accounts.find("B") is not None  # there is room again
    accounts.no_longer_removed(removed.append)
    accounts.remove("B")
    assert removed == [first]
    accounts.close()
    reactor.close()


async def test_a_directory_without_a_system_account() -> None:
    reactor = Reactor(asyncio.get_running_loop(), print)
    accounts = directory(reactor, has_system=False)
    assert accounts.system.is_system
    assert (list(accounts), len(accounts)) == ([accounts.default.name], 1)
    assert list(accounts.values()) == [accounts.default]
    assert list(accounts.items()) == [(accounts.default.name, accounts.default)]
    assert accounts.find(accounts.system.name) is None
    accounts.close()
    reactor.close()


class ByUser:
    """Each user has the account of its name."""

    is_required = True
    needs_nonce = False
    needs_credentials = True

    def authenticate(self, client: Client, connect: ConnectOptions) -> Verdict:
        return Verdict(connect.user)


class Tenants(Server):
    """A server whose directory creates the accounts of tenants."""

    def _build(self) -> None:
        super()._build()
        self.accounts = self.accounts_part.accounts = AccountDirectory(
            self.accounts_part.make_account,
            default="HOME",
            system="ROOT",
            may_create=lambda name: name.startswith("tenant-"),
        )


async def ask(client: NatsClient, subject: str, body: bytes = b"") -> dict[str, Any]:
    """Return the answer; an account is served by JetStream soon after its creation."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                return dict(json.loads((await client.request(subject, body)).data))
            except NoRespondersError:
                await asyncio.sleep(0.01)


async def test_the_verdict_names_the_account(tmp_path: Path) -> None:
    """Accounts with any names: isolated, monitored, and with a JetStream of their own."""
    server = Tenants(
        host="127.0.0.1",
        port=-1,
        authenticator=ByUser(),
        jetstream={"enabled": True, "store_dir": str(tmp_path)},
    )
    async with server:
        one, two = [
            await nats.connect(server.client_url, user=f"tenant-{number}", password="x")
            for number in (1, 2)
        ]
        stranger = NatsClient()
        with pytest.raises(Error, match=r"(?i)authorization violation"):
            await stranger.connect(
                server.client_url, user="stranger", password="x", allow_reconnect=False
            )
        await stranger.close()
        heard = [await each.subscribe("a") for each in (one, two)]
        await one.publish("a", b"one")
        await one.flush()
        await two.flush()
        assert [each.pending_msgs for each in heard] == [1, 0]

        assert (await ask(two, "$SYS.REQ.USER.INFO"))["data"]["account"] == "tenant-2"
        created = await ask(one, "$JS.API.STREAM.CREATE.S", b'{"name":"S"}')
        assert created["config"]["name"] == "S"
        assert (await ask(two, "$JS.API.STREAM.NAMES"))["total"] == 0
        assert (tmp_path / "jetstream" / "tenant-1" / "streams" / "S").is_dir()
        assert sorted(server.accounts) == ["HOME", "ROOT", "tenant-1", "tenant-2"]
        await one.close()
        await two.close()


def test_nothing_else_takes_two_names_for_granted() -> None:
    """Only the directory chooses the two; what knows no directory has them as defaults."""
    named = re.compile(r"\b(GLOBAL|SYSTEM)_ACCOUNT\b|[\"']\$(G|SYS)[\"']")
    allowed = {"cli/store.py", "config/account_names.py", "top/nats_server.py"}
    found = {
        str(path.relative_to(ROOT / "natsd"))
        for pattern in ("**/*.py", "**/*.pyx")
        for path in (ROOT / "natsd").glob(pattern)
        if named.search(path.read_text(encoding="utf-8"))
    }
    beside = ("accounts/", "local_cluster/", "spark/", "testing/")
    assert {path for path in found if not path.startswith(beside)} == allowed
