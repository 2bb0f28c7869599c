"""The intersection of two sets of patterns, against subjects that match both."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.core.routing import matches
from natsd.spark.subject_filters import in_common, intersection, simplified

SUBJECTS = [".".join(tokens) for n in range(1, 4) for tokens in itertools.product("ab", repeat=n)]
PATTERNS = st.tuples(
    st.lists(st.sampled_from(["a", "b", "*"]), max_size=3), st.sampled_from([[], [">"]])
).map(lambda parts: ".".join(parts[0] + parts[1]) or ">")


def of(patterns: tuple[str, ...]) -> set[str]:
    return {s for s in SUBJECTS if not patterns or any(matches(s, p) for p in patterns)}


@given(PATTERNS, PATTERNS)
def test_intersection_of_two(first: str, second: str) -> None:
    both = intersection(first, second)
    assert (of((both,)) if both else set()) == of((first,)) & of((second,))


@given(st.lists(PATTERNS, max_size=3), st.lists(PATTERNS, max_size=3))
def test_in_common(first: list[str], second: list[str]) -> None:
    try:
        one, other = simplified(tuple(first)), simplified(tuple(second))
        both = in_common(one, other)
    except ValueError:
        return
    assert (set() if both is None else of(both)) == of(one) & of(other)


def test_simplified() -> None:
    assert simplified(("a.b", "a.>", "c", "c")) == ("a.>", "c")
    assert simplified(("a", ">")) == ()
    with pytest.raises(ValueError, match=r'"a.\*" and "\*.b" overlap'):
        simplified(("a.*", "*.b"))
