"""`/subsz` and `/subscriptionsz`: the interest of all accounts, in numbers and one by one.

The list can be a million long: it is walked in slices, and only the rows of the page are made.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from natsd.accounts import Account
from natsd.core.subject import is_valid_literal, matches
from natsd.core.sublist_stats import SubListStats
from natsd.core.subscription import Subscription
from natsd.monitor.clock import Clock
from natsd.monitor.connz import subscription_row
from natsd.monitor.observed import ObservedServer
from natsd.monitor.query import BadParameter, Query
from natsd.monitor.turns import Steps, Turns
from natsd.monitor.values import number, timestamp

LIMIT_DEFAULT: Final = 1024
SUBSCRIPTIONS_PER_STEP: Final = 256
INTERNAL_CID: Final = 0


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


async def subsz(
    server: ObservedServer, options: SubszOptions, clock: Clock, turns: Turns
) -> dict[str, Any]:
    """The answer to `/subsz`."""
    now_ns = clock.wall_ns()
    accounts = [
        account for account in server.accounts.values() if options.account in ("", account.name)
    ]
    stats = sum((account.sublist.stats() for account in accounts), SubListStats())
    rows, total = await turns.run(_list(accounts, options)) if options.subs else ([], 0)
    answer: dict[str, Any] = {"server_id": server.id, "now": timestamp(now_ns)}
    answer |= {name: number(value) for name, value in stats.to_json().items()}
    answer |= {"total": total, "offset": options.offset, "limit": options.limit}
    return answer | ({"subscriptions_list": rows} if rows else {})


def _list(
    accounts: Sequence[Account], options: SubszOptions
) -> Steps[tuple[list[dict[str, Any]], int]]:
    """The page's rows, and how many there are in all."""
    rows: list[dict[str, Any]] = []
    total = 0
    page = range(options.offset, options.offset + options.limit)
    for account in accounts:
        subscriptions = account.sublist.subscriptions()
        for start in range(0, len(subscriptions), SUBSCRIPTIONS_PER_STEP):
            yield
            chosen = _choose(subscriptions[start : start + SUBSCRIPTIONS_PER_STEP], options.test)
            first = max(page.start - total, 0)
            rows += [_row(account, each) for each in chosen[first : max(page.stop - total, 0)]]
            total += len(chosen)
    return rows, total


def _choose(subscriptions: Sequence[Subscription], test: str) -> Sequence[Subscription]:
    """Those that a message to the test subject would reach; all, without one."""
    if not test:
        return subscriptions
    return [each for each in subscriptions if matches(test, each.subject)]


def _row(account: Account, subscription: Subscription) -> dict[str, Any]:
    cid = getattr(subscription.sink, "cid", INTERNAL_CID)
    row = subscription_row(
        subscription.subject,
        subscription.queue,
        subscription.sid,
        subscription.delivered,
        subscription.max_delivered,
        cid,
    )
    return {"account": account.name, "account_tag": account.name} | row
