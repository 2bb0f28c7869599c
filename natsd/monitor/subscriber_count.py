"""How many subscriptions of clients a subject has, for DEBUG.SUBSCRIBERS and NSUBS.

- A literal subject counts the subscriptions that its messages reach; a subject with wildcards
  counts those whose subject is a part of it.
- Only subscriptions of this server's clients count: those of the server itself do not.
- An account may have a million subscriptions: they are counted in steps.

Source: nats-server's `debugSubscribers` and `totalSubs`.
"""

from collections.abc import Iterable
from itertools import chain
from typing import Final

from natsd.accounts import Account
from natsd.clients import Client
from natsd.core.routing import InvalidSubject, Subscription, is_subset, is_valid_literal
from natsd.core.steps import Steps

SUBSCRIPTIONS_PER_STEP: Final = 1024


def count_subscribers(account: Account, subject: str, queue: str | None) -> Steps[int]:
    """Return the number of subscriptions of clients; with `queue`, of that queue group only."""
    if is_valid_literal(subject):
        return (yield from _count_matching(account, subject, queue))
    count = 0
    for first in range(0, account.sublist.count, SUBSCRIPTIONS_PER_STEP):
        for each in account.sublist.subscriptions(first, SUBSCRIPTIONS_PER_STEP):
            if _counts(each, queue) and _is_part(each.subject, subject):
                count += 1
        yield
    return count


def _count_matching(account: Account, subject: str, queue: str | None) -> Steps[int]:
    found = account.sublist.match(subject)
    members: Iterable[Subscription] = chain.from_iterable(found.queues.values())
    if queue is None:
        members = chain(found.plain, members)
    count = 0
    for index, each in enumerate(members):
        count += _counts(each, queue)
        if index % SUBSCRIPTIONS_PER_STEP == SUBSCRIPTIONS_PER_STEP - 1:
            yield
    return count


def _counts(subscription: Subscription, queue: str | None) -> bool:
    is_in_queue = queue is None or subscription.queue == queue
    return is_in_queue and isinstance(subscription.sink, Client)


def _is_part(subject: str, whole: str) -> bool:
    try:
        return is_subset(subject, whole)
    except InvalidSubject:
        return False
