"""Filter: patterns that include each other, and what an empty one means."""

import pytest

from natsd.core.subject import InvalidSubject
from natsd.store.filter import Filter


@pytest.mark.parametrize(
    ("patterns", "needed"),
    [
        (["a"], ["a"]),
        (["a.*", "a.x"], ["a.*"]),
        (["a.x", "a.>", "a.*"], ["a.>"]),
        (["a.*", "*.x"], ["*.x", "a.*"]),
        (["b", "a", "b"], ["a", "b"]),
        (["a.*", ">"], [">"]),
        ([""], [">"]),
        ([], [">"]),
    ],
)
def test_only_what_no_other_pattern_includes_is_kept(
    patterns: list[str], needed: list[str]
) -> None:
    assert Filter(patterns).patterns == tuple(each.encode() for each in needed)


def test_everything_and_a_single_subject_are_known() -> None:
    assert Filter([">"]).is_everything
    assert Filter(["a.b"]).is_literal
    assert not Filter(["a.*"]).is_literal
    assert not Filter(["a", "b"]).is_literal


def test_what_it_matches() -> None:
    wanted = Filter(["a.*", "b.>"])
    assert [
        each for each in ("a", "a.x", "a.x.y", "b", "b.x", "b.x.y") if wanted.is_match(each)
    ] == [
        "a.x",
        "b.x",
        "b.x.y",
    ]


@pytest.mark.parametrize("pattern", ["a..b", ".a", "a.", "a.>.b", "a b"])
def test_a_pattern_must_be_a_subject(pattern: str) -> None:
    with pytest.raises(InvalidSubject):
        Filter([pattern])
