"""`/subsz` shows an imported subscription with its own client and account, as nats-server does."""

from __future__ import annotations

import asyncio

from tests.accounts.shared import ByUserName, Member, account, stream
from tests.monitor.probing import probing


async def test_the_exported_subject_is_shown_with_the_importing_account() -> None:
    accounts = {"A": account(exports=[{"stream": "foo.>"}])}
    accounts["B"] = account(stream("A", "foo.>", to="bar.>"))
    async with probing(accounts=accounts, authenticator=ByUserName()) as probe:
        reader = await asyncio.to_thread(Member, probe.server, "B")
        with reader:
            await asyncio.to_thread(reader.subscribe, "bar.x", 7)
            answer = await probe.get("/subsz?subs=1&acc=A")
            rows = [row for row in answer["subscriptions_list"] if row["subject"] == "foo.x"]
            assert [(row["account"], row["sid"], row["cid"]) for row in rows] == [
                ("B", "7", reader.cid)
            ]
