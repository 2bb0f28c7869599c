"""Subjects: the rules of NATS, and nats-server's behaviour where its documentation has none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.core import routing as subject
from tests.core import naive

# Few tokens, so that subjects often match; `**` and `a>` look like wildcards but are none.
TOKENS = st.sampled_from(["a", "b", "*", ">", "**", "a>", "foo"])
ANY_SUBJECTS = st.lists(TOKENS | st.just(""), min_size=1, max_size=5).map(".".join)
VALID_SUBJECTS = st.lists(TOKENS, min_size=1, max_size=5).map(".".join).filter(naive.is_valid)


@pytest.mark.parametrize("text", ["foo", "foo.bar", "*", ">", "foo.*", "foo.*.bar", "foo.bar.>"])
def test_wildcards_stand_alone_and_the_tail_stands_last(text: str) -> None:
    assert subject.is_valid(text)


@pytest.mark.parametrize("text", ["", ".", ".foo", "foo.", "foo..bar", ">.bar", "foo.>.bar"])
def test_empty_tokens_and_an_early_tail_are_invalid(text: str) -> None:
    assert not subject.is_valid(text)
    assert not subject.is_valid_publish(text)


@pytest.mark.parametrize("space", [" ", "\t", "\n", "\r", "\f"])
def test_whitespace_is_invalid_anywhere(space: str) -> None:
    for text in (space, f"foo{space}", f"{space}foo", f"a.{space}.b", f"a.b{space}c"):
        assert not subject.is_valid(text)


@pytest.mark.parametrize(
    "text",
    [
        "foo*",
        "foo**",
        "foo.**",
        "foo*bar",
        "foo.*bar",
        "*bar",
        "foo>",
        "foo.>>",
        "foo>.bar",
        ">bar",
    ],
)
def test_wildcard_characters_inside_a_token_are_ordinary(text: str) -> None:
    assert subject.is_valid(text)
    assert subject.is_literal(text)
    assert subject.is_valid_literal(text)
    assert subject.is_valid_publish(text)
    assert subject.matches(text, text)


@pytest.mark.parametrize("text", ["*", ">", "foo.*", "foo.>", "foo.*.bar", "foo.*.>"])
def test_a_wildcard_token_makes_a_subject_not_literal(text: str) -> None:
    assert not subject.is_literal(text)
    assert not subject.is_valid_literal(text)
    assert not subject.is_valid_publish(text)


def test_the_pedantic_check_looks_at_tokens_only() -> None:
    assert subject.is_valid_literal("a b")
    assert not subject.is_valid_literal("a..b")
    assert not subject.is_valid_publish("a b")


@pytest.mark.parametrize("count", [255, 256, 2_000])
def test_there_may_be_any_number_of_tokens(count: int) -> None:
    long = ".".join(["x"] * count)
    assert subject.is_valid(long)
    assert subject.token_count(long) == count
    assert subject.matches(long, ".".join(["*"] * count))
    assert subject.matches(long, ".".join(["*"] * (count - 1)) + ".>")
    assert not subject.matches(long, ".".join(["*"] * (count - 1)))


def test_bytes_and_text_are_the_same_subject() -> None:
    assert subject.matches(b"gr\xc3\xbc\xc3\x9fe", "grüße")
    assert subject.is_valid(b"\xff.\x00")


@pytest.mark.parametrize(
    ("literal", "pattern", "expected"),
    [
        ("foo", "foo", True),
        ("foo", "bar", False),
        ("foo", "*", True),
        ("foo", ">", True),
        ("foo.bar", "*", False),
        ("foo.bar", ">", True),
        ("foo.bar", "foo.>", True),
        ("foo.bar", "bar.>", False),
        ("foo", "foo.>", False),
        ("foo", "foo.*", False),
        ("a.b.22", "a.*.*", True),
        ("a.b.22", "a.*", False),
        ("a.b.22", "a.*.*.22", False),
        ("a.b", "a.b.*", False),
        ("a.bcd", "a.bc", False),
        ("foo.***.bar", "foo.***.bar", True),
        ("foo..bar", ">", False),
        ("foo.", "foo.>", False),
        (".foo", "*.foo", False),
        ("", ">", False),
    ],
)
def test_matching(literal: str, pattern: str, expected: bool) -> None:
    assert subject.matches(literal, pattern) is expected


@pytest.mark.parametrize(
    ("narrow", "wide", "expected"),
    [
        ("foo.bar", "foo.bar", True),
        ("foo.*", ">", True),
        ("foo.*", "*.*", True),
        ("foo.*", "foo.*", True),
        ("foo.*", "foo.bar", False),
        ("foo.>", ">", True),
        ("foo.>", "*.>", True),
        ("foo.>", "foo.>", True),
        ("foo.>", "foo.*", False),
        ("foo.>", "foo.bar", False),
        ("foo", "foo.>", False),
        ("foo..bar", "foo.*", False),
        ("foo.*", "foo..bar", False),
        ("x", "*x", False),
    ],
)
def test_subsets(narrow: str, wide: str, expected: bool) -> None:
    assert subject.is_subset(narrow, wide) is expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("foo.*", "foo.*.bar.>", False),
        ("foo.*", "foo.foo", True),
        ("foo.*", "*.foo", True),
        ("foo.bar.>", "*.bar.foo", True),
        ("foo.>", "foo", False),
        ("foo.>", "*.*", True),
        ("a.*.c.>", "a.b", False),
        (">", "anything.at.all", True),
        ("a.*x", "*.y", False),
    ],
)
def test_collisions(first: str, second: str, expected: bool) -> None:
    assert subject.collide(first, second) is expected
    assert subject.collide(second, first) is expected


def test_tokens_are_counted_from_one() -> None:
    tokens = [subject.token_at("foo.bar.*", place) for place in range(5)]
    assert tokens == ["", "foo", "bar", "*", ""]
    assert subject.token_count("") == 0


def test_only_text_and_bytes_are_subjects() -> None:
    with pytest.raises(TypeError):
        subject.is_valid(7)  # type: ignore[arg-type]  # the wrong type is what is tested


@given(ANY_SUBJECTS)
def test_validity_agrees_with_the_model(text: str) -> None:
    assert subject.is_valid(text) is naive.is_valid(text)
    assert subject.is_literal(text) is naive.is_literal(text)


@given(ANY_SUBJECTS, VALID_SUBJECTS)
def test_matching_agrees_with_the_model(literal: str, pattern: str) -> None:
    assert subject.matches(literal, pattern) is naive.matches(literal, pattern)


@given(VALID_SUBJECTS, VALID_SUBJECTS)
def test_collisions_agree_with_the_model(first: str, second: str) -> None:
    assert subject.collide(first, second) is naive.collide(first, second)
    assert subject.collide(first, second) is subject.collide(second, first)


@given(VALID_SUBJECTS, VALID_SUBJECTS, ANY_SUBJECTS.filter(naive.is_literal))
def test_what_reaches_a_subset_reaches_the_whole(narrow: str, wide: str, literal: str) -> None:
    if subject.is_subset(narrow, wide) and subject.matches(literal, narrow):
        assert subject.matches(literal, wide)
