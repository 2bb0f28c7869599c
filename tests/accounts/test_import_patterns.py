"""The subjects of an import in both accounts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.accounts.import_patterns import ImportPatterns, intersection
from natsd.core.routing import SubjectTransform, is_literal, matches
from natsd.core.subject_mapping import InvalidMapping

COMMON = [
    ("a.b", "a.b", "a.b"),
    ("a.*", "*.b", "a.b"),
    ("a.>", "*.b", "a.b"),
    (">", "a.*", "a.*"),
    ("a.>", "a.>", "a.>"),
    ("a.>", "a", None),
    ("a.b", "a.c", None),
    ("*", "a.b", None),
]


@pytest.mark.parametrize(("first", "second", "common"), COMMON)
def test_common_subjects_of_two_patterns(first: str, second: str, common: str | None) -> None:
    assert intersection(first, second) == intersection(second, first) == common


REACHED = [
    ("foo.>", "bar.>", "bar.x.*", "foo.x.*"),
    ("foo.>", "bar.>", ">", "foo.>"),
    ("foo.*.*", "bar.$2.$1", "bar.y.*", "foo.*.y"),
    ("foo.*.>", "bar.{{wildcard(1)}}.>", "*.x.y.z", "foo.x.y.z"),
    ("foo.*", "$1.x.$1", "a.*.*", "foo.a"),
    ("foo.*", "$1.x.$1", "a.x.b", None),
    ("foo", "bar", "*", "foo"),
    ("foo", "bar", "baz", None),
]


@pytest.mark.parametrize(("exported", "to", "subscribed", "reached"), REACHED)
def test_a_subscription_reaches_a_part_of_the_exported_subjects(
    exported: str, to: str, subscribed: str, reached: str | None
) -> None:
    assert ImportPatterns.of(exported, to).exported_by(subscribed) == reached


def test_each_wildcard_must_be_used_and_nothing_else() -> None:
    with pytest.raises(InvalidMapping, match="not using all of the token wildcard"):
        ImportPatterns.of("a.*.*", "b.$1")
    with pytest.raises(InvalidMapping, match="only mapping function allowed for import"):
        ImportPatterns.of("a.*", "{{left(1,2)}}")


TOKENS = st.sampled_from(["a", "b", "*"])
PATTERNS = st.builds(
    lambda tokens, tail: ".".join(tokens + tail),
    st.lists(TOKENS, min_size=1, max_size=3),
    st.sampled_from([[], [], [">"]]),
)
LITERALS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=5).map(".".join)


@given(PATTERNS, PATTERNS, LITERALS)
def test_the_intersection_matches_what_both_match(first: str, second: str, subject: str) -> None:
    common = intersection(first, second)
    both = matches(subject, first) and matches(subject, second)
    assert both == (common is not None and matches(subject, common))


@given(PATTERNS, st.permutations([1, 2, 3]), PATTERNS, LITERALS)
def test_a_message_comes_if_its_local_subject_matches(
    exported: str, order: list[int], subscribed: str, subject: str
) -> None:
    stars = exported.split(".").count("*")
    used = [f"${number}" for number in order if number <= stars]
    to = ".".join(["l", *used, *([">"] if exported.endswith(">") else [])])
    patterns = ImportPatterns.of(exported, to)
    local = SubjectTransform(*patterns.to_local()).map(subject)
    if is_literal(exported):
        local = to if subject == exported else None
    reached = patterns.exported_by(subscribed)
    assert (reached is not None and matches(subject, reached)) == (
        local is not None and matches(local, subscribed)
    )
    if local is not None and not is_literal(exported):
        assert SubjectTransform(*patterns.to_exported()).map(local) == subject
