"""The record of a client's subscription, for monitoring."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """One subscription, for monitoring."""

    subject: str
    queue: str | None  # None: plain subscription
    sid: str
    msgs: int  # delivered messages
    max: int  # auto-unsubscribe limit; 0: none
