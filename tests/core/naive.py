"""The readable model that the compiled routing core is compared with: slow and simple."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from natsd.core.routing import MatchResult, Subscription


def tokens(subject: str) -> list[str]:
    return subject.split(".")


def is_valid(subject: str) -> bool:
    *before, last = tokens(subject)
    return all(before) and bool(last) and ">" not in before and not set(subject) & set(" \t\n\r\f")


def is_literal(subject: str) -> bool:
    return not {"*", ">"} & set(tokens(subject))


def matches(literal: str, pattern: str) -> bool:
    """Return whether a message to `literal` reaches a subscription to the valid `pattern`."""
    have, want = tokens(literal), tokens(pattern)
    if "" in have:
        return False
    if want[-1] == ">":
        want.pop()
        if len(have) <= len(want):
            return False
        have = have[: len(want)]
    return len(have) == len(want) and all(w in ("*", h) for h, w in zip(have, want, strict=True))


def collide(first: str, second: str) -> bool:
    """Return whether some literal subject matches both valid subjects; one is built and tried."""
    one, other = tokens(first), tokens(second)
    length = max(len(one), len(other))
    witness = [
        next((t for t in (token_at(one, i), token_at(other, i)) if t not in ("*", ">", None)), "x")
        for i in range(length)
    ]
    return matches(".".join(witness), first) and matches(".".join(witness), second)


def token_at(subject: list[str], place: int) -> str | None:
    return subject[place] if place < len(subject) else None


@dataclass
class NaiveSubList:
    """A list of subscriptions, each of which is compared with every subject."""

    subs: list[Subscription] = field(default_factory=list)

    def insert(self, sub: Subscription) -> bool:
        if sub in self.subs:
            return False
        self.subs.append(sub)
        return True

    def remove(self, sub: Subscription) -> bool:
        if sub not in self.subs:
            return False
        self.subs.remove(sub)
        return True

    def match(self, subject: str) -> Answer:
        return answer_of([sub for sub in self.subs if matches(subject, sub.subject)])

    def reverse_match(self, pattern: str) -> Answer:
        return answer_of([sub for sub in self.subs if collide(pattern, sub.subject)])


@dataclass(frozen=True)
class Answer:
    """The matching subscriptions, unordered; a remote queue subscription counts `weight` times."""

    plain: Counter[Subscription]
    queues: dict[str, Counter[Subscription]]


def answer_of(subs: list[Subscription]) -> Answer:
    queues: dict[str, Counter[Subscription]] = {}
    for sub in subs:
        if sub.queue is not None and sub.weight:
            queues.setdefault(sub.queue, Counter())[sub] = sub.weight
    return Answer(Counter(sub for sub in subs if sub.queue is None), queues)


def seen(result: MatchResult) -> Answer:
    """Convert a real result into the model's type."""
    return Answer(
        Counter(result.plain), {name: Counter(subs) for name, subs in result.queues.items()}
    )
