"""kill -9 under load in two accounts: each has what it was acknowledged, and nothing of the other.

Both accounts have a stream and subjects of the same names.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.clients.target import GO_SERVER, ProcessTarget
from tests.jetstream.behaviour.api import Api
from tests.jetstream.serve import connect, kill_soon, load_until_gone, serve_files
from tests.jetstream.test_kill import History, check_stream, publish
from tests.server.accounts import settings_of
from tests.store.crash import TORTURE

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(bool(GO_SERVER), reason="nats-server does not sync by default"),
]

ROUNDS = 2
PUBLISHERS = 2
ACCOUNTS = ("A", "B")
SETTINGS = settings_of({name: {"jetstream": True} for name in ACCOUNTS})


class OfAccount:
    """An account's load, and what it knows over all the lives of the server."""

    def __init__(self, name: str) -> None:
        self.login: dict[str, Any] = {"user": name, "password": "-"}
        self.history = History()
        self.history.next_id = 1_000_000 if name == "B" else 0  # bodies tell the account
        self.unsure: list[list[str]] = [[] for _ in range(PUBLISHERS)]

    async def create(self, server: ProcessTarget) -> None:
        api = Api(await connect(server, **self.login))
        await api.create_stream("S", subjects=["s.*"], storage="file")
        await api.nc.close()

    async def load(self, server: ProcessTarget) -> None:
        publishers = [partial(publish, history=self.history, unsure=mine) for mine in self.unsure]
        await load_until_gone(server, publishers, **self.login)

    async def check(self, server: ProcessTarget) -> None:
        api = Api(await connect(server, **self.login))
        await check_stream(api, self.history)
        await api.nc.close()


async def test_two_accounts_are_killed_again_and_again(tmp_path: Path) -> None:
    chance, accounts = random.Random(15), [OfAccount(name) for name in ACCOUNTS]
    for number in range(ROUNDS * TORTURE):
        server = await asyncio.to_thread(serve_files, tmp_path, server=SETTINGS)
        for account in accounts:
            await (account.create if number == 0 else account.check)(server)
        killer = asyncio.ensure_future(kill_soon(server, 0.05 + chance.random() * 0.3))
        await asyncio.gather(*(account.load(server) for account in accounts))
        await killer
    server = await asyncio.to_thread(serve_files, tmp_path, server=SETTINGS)
    for account in accounts:
        await account.check(server)
        assert account.history.acknowledged
    await asyncio.to_thread(server.stop)
