"""SubList against the readable model, through random histories; held results never change."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from natsd.core.routing import MatchResult, SubList, Subscription
from tests.core import naive

TOKENS = st.sampled_from(["a", "b", "c", "longer-than-eight", "*", "**"])
LITERALS = st.lists(TOKENS | st.just(">"), min_size=1, max_size=5).map(".".join)
PATTERNS = st.tuples(
    LITERALS.map(lambda s: s.replace(">", "a")), st.sampled_from(["", "", ".>"])
).map("".join) | st.just(">")
QUEUES = st.none() | st.sampled_from(["q1", "q2", "a-queue-with-a-longer-name"])


class SubListHistory(RuleBasedStateMachine):
    subs = Bundle("subs")

    @initialize(cache=st.booleans())
    def start(self, cache: bool) -> None:
        self.real = SubList(cache=cache)
        self.model = naive.NaiveSubList()
        self.held: list[tuple[MatchResult, naive.Answer]] = []

    @rule(target=subs, subject=PATTERNS, queue=QUEUES, weight=st.integers(0, 3))
    def subscribe(self, subject: str, queue: str | None, weight: int) -> Subscription:
        sub = Subscription(subject, queue, weight=weight)
        assert self.real.insert(sub) is self.model.insert(sub)
        return sub

    @rule(sub=subs)
    def insert_again(self, sub: Subscription) -> None:
        assert self.real.insert(sub) is self.model.insert(sub)

    @rule(sub=subs)
    def remove(self, sub: Subscription) -> None:
        assert self.real.remove(sub) is self.model.remove(sub)

    @rule(batch=st.lists(subs, max_size=4))
    def remove_batch(self, batch: list[Subscription]) -> None:
        assert self.real.remove_batch(batch) == sum(self.model.remove(sub) for sub in batch)

    @rule(sub=subs, weight=st.integers(0, 3))
    def reweigh(self, sub: Subscription, weight: int) -> None:
        self.real.update_weight(sub, weight)

    @rule(subject=LITERALS, hold=st.booleans())
    def match(self, subject: str, hold: bool) -> None:
        result = self.real.match(subject)
        answer = self.model.match(subject)
        assert naive.seen(result) == answer
        assert self.real.has_interest(subject) or not len(result)
        if hold:
            self.held.append((result, answer))

    @rule(subject=PATTERNS)
    def reverse_match(self, subject: str) -> None:
        assert naive.seen(self.real.reverse_match(subject)) == self.model.reverse_match(subject)

    @invariant()
    def everything_agrees(self) -> None:
        assert len(self.real) == len(self.model.subs)
        assert set(self.real.subscriptions()) == set(self.model.subs)
        for result, answer in self.held:
            assert naive.seen(result) == answer
            if result.live:
                assert self.model.match(result.subject_text) == answer


SubListHistory.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestSubListHistory = SubListHistory.TestCase


@given(st.lists(PATTERNS, max_size=60), st.lists(LITERALS, max_size=20))
def test_inserted_then_halved_then_emptied(patterns: list[str], published: list[str]) -> None:
    real, model = SubList(), naive.NaiveSubList()
    subs = [Subscription(pattern) for pattern in patterns]
    for sub in subs:
        real.insert(sub)
        model.insert(sub)
    for removed in (subs[:0], subs[::2], subs[1::2]):
        for sub in removed:
            assert real.remove(sub)
            assert model.remove(sub)
        for subject in published:
            assert naive.seen(real.match(subject)) == model.match(subject)
    assert len(real) == 0
