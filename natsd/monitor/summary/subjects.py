"""What happens on which subject: deliveries to subscriptions, and messages into streams.

The counters that subscriptions and streams have anyway are added up by the subject that is
subscribed; so messages without a subscriber are not seen here. Looked at are the subscriptions of
the clients that receive most, up to `SUBSCRIPTIONS_MAX`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from natsd.core.steps import Steps
from natsd.monitor.summary.connections import MeasuredClient
from natsd.monitor.summary.meter import Meter, rounded
from natsd.monitor.summary.ranking import Ranking, shown

SUBSCRIPTIONS_MAX: Final = 10_000
SUBSCRIPTIONS_PER_STEP: Final = 128
FIRST_BY_EACH: Final = 25
INBOXES: Final = {"_INBOX": "_INBOX.>", "_R_": "_R_.>"}
"""Subjects that differ with each client or request are added up, by their first token."""


@dataclass(slots=True, eq=False)
class SubjectActivity:
    """The deliveries on a subject; the rate is None if none of its counters was seen before."""

    account: str
    subject: str
    stream: str = ""
    """The stream that stores the subject; empty: these are subscriptions of clients."""
    subscriptions: int = 0
    queues: int = 0
    """The subscriptions that are members of a queue group."""
    msgs: int = 0
    rate: float | None = None

    def row(self) -> dict[str, Any]:
        """Return the activity as the summary shows it."""
        return {
            "account": shown(self.account),
            "subject": shown(self.subject),
            "stream": shown(self.stream),
            "subscriptions": self.subscriptions,
            "queue_subscriptions": self.queues,
            "msgs": self.msgs,
            "msgs_rate": rounded(self.rate),
        }


def choose_subjects(
    receivers: Iterable[MeasuredClient], meter: Meter
) -> Steps[tuple[Ranking[SubjectActivity], int]]:
    """Return the subjects with most deliveries, and how many subscriptions were looked at."""
    by_subject: dict[tuple[str, str], SubjectActivity] = {}
    seen = 0
    for measured in receivers:
        client = measured.client
        if client.num_subscriptions > SUBSCRIPTIONS_MAX - seen:
            continue
        account = client.account_name
        for subscription in client.own_subscriptions():
            seen += 1
            if seen % SUBSCRIPTIONS_PER_STEP == 0:
                yield
            subject = subscription.subject
            subject = INBOXES.get(subject.partition(".")[0], subject)
            activity = by_subject.get((account, subject))
            if activity is None:
                activity = by_subject[account, subject] = SubjectActivity(account, subject)
            delivered = subscription.delivered
            activity.subscriptions += 1
            activity.queues += subscription.queue is not None
            activity.msgs += delivered
            rates = meter.rates(subscription, (delivered,))
            if rates is not None:
                activity.rate = (activity.rate or 0.0) + rates[0]
        yield
    return (yield from _rank(by_subject)), seen


def _rank(by_subject: dict[tuple[str, str], SubjectActivity]) -> Steps[Ranking[SubjectActivity]]:
    ranking: Ranking[SubjectActivity] = Ranking(3, FIRST_BY_EACH)
    for index, activity in enumerate(by_subject.values()):
        if index % SUBSCRIPTIONS_PER_STEP == SUBSCRIPTIONS_PER_STEP - 1:
            yield
        ranking.add(activity, (activity.rate or 0.0, activity.msgs, activity.subscriptions))
    return ranking
