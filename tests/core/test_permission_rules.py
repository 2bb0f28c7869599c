"""The compiled rules say what a model says that tries all subjects one by one.

The model knows one definition: a pattern stands for the set of all its subjects. It is exact,
because a token that no rule names (`z`), and one level more than any rule has, stand for all the
others.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.core.routing import InvalidSubject, PermissionRules
from tests.core.naive import matches

TOKENS = ("a", "b", "z")
DEPTH_MAX = 4
SUBJECTS = [
    ".".join(parts) for depth in range(1, DEPTH_MAX + 1) for parts in product(TOKENS, repeat=depth)
]


@cache
def subjects_of(pattern: str) -> frozenset[str]:
    return frozenset(subject for subject in SUBJECTS if matches(subject, pattern))


@cache
def covered(subject: str, rule: str) -> bool:
    """Return whether a rule speaks of everything that a subscription to `subject` receives."""
    return subjects_of(subject) <= subjects_of(rule)


def may_publish(allow: list[str] | None, deny: list[str], subject: str) -> bool:
    allowed = allow is None or any(matches(subject, rule) for rule in allow)
    return allowed and not any(matches(subject, rule) for rule in deny)


def covering(rules: list[str], subject: str) -> tuple[bool, list[str]]:
    """Return whether a plain rule covers the subject, and the queues of the rules that do."""
    pairs = [[*rule.split(), ""][:2] for rule in rules]
    of_subject = [queue for name, queue in pairs if covered(subject, name)]
    return "" in of_subject, [queue for queue in of_subject if queue]


def may_subscribe(
    allow: list[str] | None, deny: list[str], subject: str, queue: str | None
) -> bool:
    allowed = True
    if allow is not None:
        allowed, queues = covering(allow, subject)
        if queue is not None and queues:
            allowed = any(queue == rule or covered(queue, rule) for rule in queues)
    return allowed and not is_denied(deny, subject, queue)


def is_denied(deny: list[str], subject: str, queue: str | None) -> bool:
    denied, queues = covering(deny, subject)
    return denied or (
        queue is not None and any(queue == rule or covered(queue, rule) for rule in queues)
    )


literals = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=3).map(".".join)


@st.composite
def patterns(draw: st.DrawFn) -> str:
    parts = draw(st.lists(st.sampled_from(["a", "b", "*"]), max_size=2))
    return ".".join([*parts, draw(st.sampled_from(["a", "b", "*", ">"]))])


queues = st.sampled_from(["a", "b", "a.b", "z"])
rules = st.lists(patterns(), max_size=5)
queue_rules = st.lists(
    st.builds(lambda rule, queue: f"{rule} {queue}".strip(), patterns(), st.just("") | patterns()),
    max_size=5,
)


@settings(max_examples=150, deadline=None)
@given(st.none() | rules, rules, st.lists(literals, min_size=1, max_size=10))
def test_publish(allow: list[str] | None, deny: list[str], subjects: list[str]) -> None:
    compiled = PermissionRules(publish_allow=allow, publish_deny=deny)
    for subject in subjects:
        assert compiled.may_publish(subject) == may_publish(allow, deny, subject)


@settings(max_examples=150, deadline=None)
@given(
    st.none() | queue_rules,
    queue_rules,
    st.lists(st.tuples(patterns() | literals, st.none() | queues), min_size=1, max_size=5),
)
def test_subscribe_and_receive(
    allow: list[str] | None, deny: list[str], wanted: list[tuple[str, str | None]]
) -> None:
    compiled = PermissionRules(subscribe_allow=allow, subscribe_deny=deny)
    for subject, queue in wanted:
        allowed = may_subscribe(allow, deny, subject, queue)
        assert compiled.may_subscribe(subject, queue) == allowed
        for literal in SUBJECTS[:39]:
            may_receive = not is_denied(deny, literal, queue)
            assert compiled.may_receive(literal, queue) == may_receive


@pytest.mark.parametrize(
    "rules",
    [
        {"publish_allow": ["a b"]},
        {"publish_deny": [""]},
        {"publish_allow": ["a..b"]},
        {"subscribe_allow": ["a b c"]},
        {"subscribe_deny": ["a.>.b"]},
        {"subscribe_deny": ["a q..r"]},
    ],
)
def test_what_is_no_rule_is_refused(rules: dict[str, list[str]]) -> None:
    with pytest.raises(InvalidSubject):
        PermissionRules(**rules)  # type: ignore[arg-type]  # each name has a list


def test_another_denial_is_added() -> None:
    rules = PermissionRules(publish_allow=["a.>"], publish_deny=["a.b"], responses_max=3)
    more = rules.with_publish_deny("a.c")
    assert [more.may_publish(s) for s in ("a.a", "a.b", "a.c")] == [True, False, False]
    assert rules.may_publish("a.c")
    assert more.responses_max == 3
