"""Observers of a SubList's interest: a listing in slices plus the events equal the interest.

The readable model is a list of subscriptions. Routes need this: `RS+` for the first subscription,
`RS-` for the last, and the weight of each queue group (nats-server, `updateRouteSubscriptionMap`).
"""

import sys
from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from natsd.core.routing import SubList, Subscription
from tests.core.test_sublist_model import PATTERNS

QUEUES = st.sampled_from([None, None, "q", "r"])
Interest = dict[tuple[bytes, bytes | None], int]


def interest_of(subs: list[Subscription], *, local: bool) -> Interest:
    """Return the weights of all interests, as they are defined."""
    weights: Interest = defaultdict(int)
    for sub in subs:
        if not (local and sub.is_remote):
            weights[sub.subject_bytes, sub.queue_bytes] += 1 if sub.queue is None else sub.weight
    return {key: weight for key, weight in weights.items() if weight}


def listed(sublist: SubList, *, local: bool = False) -> Interest:
    """Return the whole listing."""
    rows, after = sublist.interests(local=local)
    while after:
        more, after = sublist.interests(after, local=local)
        rows += more
    assert len({(subject, queue) for subject, queue, _ in rows}) == len(rows)
    return {(subject, queue): weight for subject, queue, weight in rows}


class Observer:
    """What a route does: observe, list in slices, keep for each interest what was told last."""

    def __init__(self, sublist: SubList, *, local: bool) -> None:
        self.sublist = sublist
        self.local = local
        self.known: Interest = {}
        self.after: bytes | None = b""  # None: everything is listed
        self.heard: set[tuple[bytes, bytes | None]] = set()
        sublist.observe(self.changed, local=local)

    def changed(self, subject: bytes, queue: bytes | None, before: int, after: int) -> None:
        key = (subject, queue)
        assert before != after
        if self.after is None or key in self.heard:
            assert self.known.get(key, 0) == before
        self.heard.add(key)
        self.set(key, after)

    def list_more(self) -> None:
        if self.after is not None:
            rows, after = self.sublist.interests(self.after, local=self.local)
            self.after = after or None
            for subject, queue, weight in rows:
                if (subject, queue) in self.heard:
                    assert self.known.get((subject, queue)) == weight
                self.set((subject, queue), weight)

    def set(self, key: tuple[bytes, bytes | None], weight: int) -> None:
        self.known[key] = weight
        if not weight:
            del self.known[key]


class InterestHistory(RuleBasedStateMachine):
    """Changes of every kind, with observers that begin at any time and list slowly."""

    subs = Bundle("subs")

    @initialize()
    def start(self) -> None:
        self.real = SubList()
        self.model: list[Subscription] = []
        self.observers: list[Observer] = []
        self.crowd = 0

    @rule(local=st.booleans())
    def observe(self, local: bool) -> None:
        self.observers.append(Observer(self.real, local=local))

    @rule()
    def list_more(self) -> None:
        for observer in self.observers:
            observer.list_more()

    @rule()
    def leave(self) -> None:
        if self.observers:
            self.real.unobserve(self.observers.pop(0).changed)

    @rule(
        target=subs,
        subject=PATTERNS,
        queue=QUEUES,
        weight=st.integers(0, 3),
        remote=st.booleans(),
    )
    def subscribe(self, subject: str, queue: str | None, weight: int, remote: bool) -> Subscription:
        sub = Subscription(subject, queue, weight=weight, remote=remote)
        assert self.real.insert(sub)
        self.model.append(sub)
        return sub

    @rule(count=st.sampled_from([3, 40, 500]))
    def crowd_in(self, count: int) -> None:
        """Tables grow, so that what is listed stands elsewhere."""
        for _ in range(count):
            self.crowd += 1
            self.subscribe(f"a.crowd{self.crowd}", None, 1, self.crowd % 3 == 0)

    @rule(left=st.sampled_from([0, 5, 300]))
    def crowd_out(self, left: int) -> None:
        """Tables shrink."""
        crowd = [sub for sub in self.model if sub.subject.startswith("a.crowd")][left:]
        assert self.real.remove_batch(crowd) == len(crowd)
        gone = set(crowd)
        self.model = [sub for sub in self.model if sub not in gone]

    @rule(sub=subs)
    def remove(self, sub: Subscription) -> None:
        assert self.real.remove(sub) is (sub in self.model)
        self.model = [each for each in self.model if each is not sub]

    @rule(batch=st.lists(subs, max_size=4))
    def remove_batch(self, batch: list[Subscription]) -> None:
        self.real.remove_batch(batch)
        self.model = [each for each in self.model if each not in batch]

    @rule(sub=subs, weight=st.integers(0, 3))
    def reweigh(self, sub: Subscription, weight: int) -> None:
        self.real.update_weight(sub, weight)

    @rule()
    def clear(self) -> None:
        self.real.clear()
        self.model = []

    @invariant()
    def everyone_knows_the_interest(self) -> None:
        for local in (False, True):
            expected = interest_of(self.model, local=local)
            assert listed(self.real, local=local) == expected
            for observer in self.observers:
                if observer.local is local and observer.after is None:
                    assert observer.known == expected

    def teardown(self) -> None:
        if hasattr(self, "observers"):
            for observer in self.observers:
                while observer.after is not None:
                    observer.list_more()
            self.everyone_knows_the_interest()
            self.real.clear()
            assert all(observer.known == {} for observer in self.observers)


InterestHistory.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestInterestHistory = InterestHistory.TestCase


@given(st.lists(st.tuples(PATTERNS, st.booleans()), max_size=60, unique_by=lambda each: each[0]))
def test_a_listing_goes_on_behind_what_has_gone(patterns: list[tuple[str, bool]]) -> None:
    """Each subject is a place to go on from, whether it is listed or not."""
    whole, some = SubList(), SubList()
    for pattern, is_in_both in patterns:
        whole.insert(Subscription(pattern))
        if is_in_both:
            some.insert(Subscription(pattern))
    order = [subject for subject, _ in listed(whole)]
    kept = {pattern.encode() for pattern, is_in_both in patterns if is_in_both}
    for at, subject in enumerate(order):
        rows, _ = some.interests(subject)
        assert [name for name, _, _ in rows] == [name for name in order[at + 1 :] if name in kept]
    whole.clear()
    some.clear()


def test_a_slice_is_short(sublist: SubList) -> None:
    """Deep subjects and many groups count as well: no slice takes long."""
    for number in range(300):
        sublist.insert(Subscription(".".join(["deep"] * 100 + [str(number)])))
        sublist.insert(Subscription("crowded", f"group-{number}"))
    seen, after, slices = 0, b"", 0
    while True:
        rows, after = sublist.interests(after)
        assert len(rows) <= 300  # one node with all its groups
        seen, slices = seen + len(rows), slices + 1
        if not after:
            break
    assert (seen, slices > 2) == (600, True)
    sublist.clear()


@pytest.fixture
def sublist() -> SubList:
    return SubList()


@pytest.fixture
def reported() -> Iterator[list[BaseException | None]]:
    """Collect exceptions of callbacks, which nobody can catch."""
    seen: list[BaseException | None] = []
    usual, sys.unraisablehook = sys.unraisablehook, lambda report: seen.append(report.exc_value)
    yield seen
    sys.unraisablehook = usual


def test_a_callback_that_raises_hides_nothing_from_the_others(
    sublist: SubList, reported: list[BaseException | None]
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no")

    heard: list[object] = []
    sublist.watch("a", fail)
    sublist.watch("a", heard.append)
    sublist.observe(fail)
    sublist.observe(lambda *event: heard.append(event))
    sub = Subscription("a")
    assert sublist.insert(sub)
    assert heard == [True, (b"a", None, 0, 1)]
    assert sub in sublist
    sublist.clear()
    assert heard[2:] == [False, (b"a", None, 1, 0)]
    assert [str(error) for error in reported] == ["no"] * 4


def test_only_the_first_and_the_last_of_a_subject_are_a_routes_business(sublist: SubList) -> None:
    told: list[str] = []

    def tell_route(subject: bytes, queue: bytes | None, before: int, after: int) -> None:
        if queue is not None or not before or not after:
            words = [subject, *([queue, b"%d" % after] if queue and after else [queue or b""])]
            told.append(f"RS{'+' if after else '-'} {b' '.join(words).decode().strip()}")

    sublist.observe(tell_route, local=True)
    plain = [Subscription("orders.*") for _ in range(3)]
    workers = [Subscription("orders.*", "workers") for _ in range(2)]
    other_server = Subscription("orders.*", "workers", weight=5, remote=True)
    for sub in (*plain, other_server, *workers):
        sublist.insert(sub)
    assert told == ["RS+ orders.*", "RS+ orders.* workers 1", "RS+ orders.* workers 2"]
    sublist.update_weight(other_server, 7)
    assert sublist.weight("orders.*", "workers") == 9
    assert sublist.weight("orders.*", "workers", local=True) == 2
    sublist.remove_batch([*plain, *workers, other_server])
    assert told[3:] == ["RS- orders.*", "RS+ orders.* workers 1", "RS- orders.* workers"]


def test_nobody_observes_after_the_last_has_left(sublist: SubList) -> None:
    heard: list[object] = []

    def hear(*event: object) -> None:
        heard.append(event)

    sublist.observe(hear)
    sublist.observe(hear, local=True)
    sublist.insert(Subscription("a"))
    assert len(heard) == 2
    sublist.unobserve(hear)
    sublist.unobserve(hear)
    sublist.unobserve(hear)
    sublist.clear()
    assert len(heard) == 2
    assert sublist.weight("a") == 0
