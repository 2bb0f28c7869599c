"""`/subsz` and `/subscriptionsz`: statistics of all accounts' subscriptions, and their list.

The list can be a million long: only the requested page is read, in slices. A subscription that
comes or goes between two slices may shift others into the page, or out of it. Subscriptions of
other servers count in the statistics, but are not listed: `/routez` lists them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from natsd.accounts import Account
from natsd.core.routing import ImportedSubscription, Subscription, is_valid_literal
from natsd.core.steps import Steps
from natsd.core.sublist_stats import SubListStats
from natsd.monitor.clock import Clock
from natsd.monitor.connection_row import subscription_row
from natsd.monitor.observed import ObservedServer
from natsd.monitor.query import BadParameter, Query
from natsd.monitor.turns import Turns
from natsd.monitor.values import number, timestamp

LIMIT_DEFAULT: Final = 1024
SUBSCRIPTIONS_PER_STEP: Final = 1024
INTERNAL_CID: Final = 0


@dataclass(frozen=True, slots=True)
class SubszParameters:
    """The parameters of a `/subsz` request."""

    subs: bool
    offset: int
    limit: int
    account: str
    test: str

    @classmethod
    def of(cls, query: Query) -> "SubszParameters":
        """Read the parameters; raises BadParameter."""
        subs = query.flag("subs")
        offset, limit = max(query.whole("offset"), 0), query.whole("limit")
        test = query.text("test")
        if test and not is_valid_literal(test):
            raise BadParameter(f"invalid test subject, must be valid publish subject: {test}")
        limit = limit if limit > 0 else LIMIT_DEFAULT
        return cls(subs, offset, limit, query.text("acc"), test)


async def subsz(
    server: ObservedServer, options: SubszParameters, clock: Clock, turns: Turns
) -> dict[str, Any]:
    """Return the answer to `/subsz`."""
    now_ns = clock.wall_ns()
    accounts = [
        account for account in server.accounts.values() if options.account in ("", account.name)
    ]
    stats = sum((account.sublist.stats() for account in accounts), SubListStats())
    rows, total = await turns.run(_list(server, accounts, options)) if options.subs else ([], 0)
    answer: dict[str, Any] = {"server_id": server.id, "now": timestamp(now_ns)}
    answer |= {name: number(value) for name, value in stats.to_json().items()}
    answer |= {"total": total, "offset": options.offset, "limit": options.limit}
    return answer | ({"subscriptions_list": rows} if rows else {})


def _list(
    server: ObservedServer, accounts: Sequence[Account], options: SubszParameters
) -> Steps[tuple[list[dict[str, Any]], int]]:
    """Return the rows of the page, and the number of subscriptions in all."""
    rows: list[dict[str, Any]] = []
    total = 0
    page = range(options.offset, options.offset + options.limit)
    for account in accounts:
        yield
        found = _reached(account, options.test) if options.test else None
        if found is None and server.cluster is not None:
            found = yield from _own(account)
        count = account.sublist.count if found is None else len(found)
        wanted = range(max(page.start - total, 0), min(page.stop - total, count))
        for first in wanted[::SUBSCRIPTIONS_PER_STEP]:
            yield
            most = min(SUBSCRIPTIONS_PER_STEP, wanted.stop - first)
            if found is None:
                some = account.sublist.subscriptions(first, most)
            else:
                some = found[first : first + most]
            rows += [_row(account, each) for each in some]
        total += count
    return rows, total


def _reached(account: Account, test: str) -> list[Subscription]:
    """Return the subscriptions of this server that match the test subject."""
    found = account.sublist.match(test)
    members = chain.from_iterable(found.queues.values())
    return [each for each in dict.fromkeys(chain(found.plain, members)) if not each.is_remote]


def _own(account: Account) -> Steps[list[Subscription]]:
    """Return the subscriptions of this server."""
    found: list[Subscription] = []
    for first in range(0, account.sublist.count, SUBSCRIPTIONS_PER_STEP):
        some = account.sublist.subscriptions(first, SUBSCRIPTIONS_PER_STEP)
        found += [each for each in some if not each.is_remote]
        yield
    return found


def _row(account: Account, subscription: Subscription) -> dict[str, Any]:
    owner = subscription
    if isinstance(subscription, ImportedSubscription):  # it is shown with the importing account
        owner = subscription.original
        account = getattr(subscription.sink, "account", account)
    cid = getattr(owner.sink, "cid", INTERNAL_CID)
    row = subscription_row(
        subscription.subject,
        subscription.queue,
        subscription.sid,
        subscription.delivered,
        subscription.max_delivered,
        cid,
    )
    return {"account": account.name, "account_tag": account.name_tag} | row
