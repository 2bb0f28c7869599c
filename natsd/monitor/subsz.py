"""`/subsz` and `/subscriptionsz`: the interest of all accounts, in numbers and one by one.

The list can be a million long: it is walked in slices, and only the rows of the page are made.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

from natsd.core.subject import is_valid_literal, matches
from natsd.monitor.connz import subscription_row
from natsd.monitor.observed import (
    Clock,
    ObservedAccount,
    ObservedClient,
    ObservedServer,
    ObservedSubscription,
)
from natsd.monitor.query import BadParameter, Query
from natsd.monitor.values import number, timestamp

LIMIT_DEFAULT: Final = 1024
SUBSCRIPTIONS_PER_SLICE: Final = 2048


@dataclass(frozen=True, slots=True)
class SubszOptions:
    """What the request asks for."""

    subs: bool
    offset: int
    limit: int
    account: str
    test: str

    @classmethod
    def of(cls, query: Query) -> "SubszOptions":
        """Read the parameters; raises `BadParameter`."""
        subs = query.flag("subs")
        offset, limit = max(query.whole("offset"), 0), query.whole("limit")
        test = query.text("test")
        if test and not is_valid_literal(test):
            raise BadParameter(f"invalid test subject, must be valid publish subject: {test}")
        limit = limit if limit > 0 else LIMIT_DEFAULT
        return cls(subs, offset, limit, query.text("acc"), test)


async def subsz(server: ObservedServer, options: SubszOptions, clock: Clock) -> dict[str, Any]:
    """The answer to `/subsz`."""
    now_ns = clock.wall_ns()
    accounts = [
        account for account in server.accounts.values() if options.account in ("", account.name)
    ]
    rows, total = await _list(server, options) if options.subs else ([], 0)
    answer = {"server_id": server.id, "now": timestamp(now_ns)} | _statistics(accounts)
    answer |= {"total": total, "offset": options.offset, "limit": options.limit}
    return answer | ({"subscriptions_list": rows} if rows else {})


def _statistics(accounts: list[ObservedAccount]) -> dict[str, Any]:
    """Sums over the accounts; rates are those of all together."""
    each = [account.sublist.statistics() for account in accounts]
    matches_made = sum(one.num_matches for one in each)
    cached = sum(one.num_cache for one in each)
    cache_hits = sum(one.cache_hits for one in each)
    fanout = sum(one.total_fanout for one in each)
    return {
        "num_subscriptions": sum(one.num_subs for one in each),
        "num_cache": cached,
        "num_inserts": sum(one.num_inserts for one in each),
        "num_removes": sum(one.num_removes for one in each),
        "num_matches": matches_made,
        "cache_hit_rate": number(cache_hits / matches_made) if matches_made else 0,
        "max_fanout": max((one.max_fanout for one in each), default=0),
        "avg_fanout": number(fanout / cached) if cached else 0,
    }


async def _list(server: ObservedServer, options: SubszOptions) -> tuple[list[dict[str, Any]], int]:
    """The page's rows, and how many there are in all."""
    rows: list[dict[str, Any]] = []
    total = 0
    page = range(options.offset, options.offset + options.limit)
    async for client, subscription in _walk(server, options.account):
        if options.test and not matches(options.test, subscription.subject):
            continue
        if total in page:
            account = {"account": client.account.name, "account_tag": client.account.name}
            rows.append(account | subscription_row(subscription, client.cid))
        total += 1
    return rows, total


async def _walk(
    server: ObservedServer, account_name: str
) -> AsyncIterator[tuple[ObservedClient, ObservedSubscription]]:
    """Every subscription of the account's clients, with a pause for the loop now and then."""
    walked = 0
    for client in list(server.clients.values()):
        if account_name not in ("", client.account.name):
            continue
        for subscription in client.subscriptions():
            yield client, subscription
            walked += 1
            if walked % SUBSCRIPTIONS_PER_SLICE == 0:
                await asyncio.sleep(0)
