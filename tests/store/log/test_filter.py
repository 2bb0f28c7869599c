"""Filter: patterns that include each other, and the meaning of an empty one."""

import pytest

from natsd.core.routing import InvalidSubject
from natsd.store.log.message_log import LastMatch, MultiLast, NumPending
from natsd.store.log.subjects import Filter
from natsd.store.mem_store import MemStore
from natsd.store.store import Limits


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


@pytest.mark.parametrize("pattern", ["a.%d", "a.%d.*", "*.%d.>", "%d.*.b"])
def test_many_patterns_are_taken_in_steps(pattern: str) -> None:
    """A filter built in steps is the same as one built at once, and can be emptied in steps."""
    patterns = [pattern % number for number in range(5000)]
    steps = Filter.in_steps(patterns[::-1])
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            wanted = end.value
            break
        count += 1
    assert count > 10
    assert wanted.patterns == Filter(patterns).patterns
    subject = (pattern % 77).replace("*", "x").replace(">", "y")
    assert wanted.is_match(subject)
    assert not wanted.is_match(subject.replace("77", "5000"))
    assert len(list(wanted.release())) == (10 if "*" in pattern else 0)


def test_patterns_that_match_nothing_are_not_all_asked_in_one_step() -> None:
    """A search by very many patterns takes many steps, whether the patterns match or not."""
    store = MemStore(Limits())
    for number in range(10):
        store.append(f"a.{number}.x", None, b"", 1)
    for patterns in ([f"b.{n}.*" for n in range(5000)], [f"a.{n}.*" for n in range(5000)]):
        found = 10 if patterns[0] == "a.0.*" else 0
        for operation in (
            MultiLast(store.log, Filter(patterns)),
            NumPending(store.log, Filter(patterns), 1),
            LastMatch(store.log, Filter(patterns)),
        ):
            steps = 1
            while not operation.step(1 << 40):
                steps += 1
            assert steps > 5
            result = operation.result
            if isinstance(result, tuple):
                assert result[0] == found
            else:
                assert result == (found if isinstance(result, int) else list(range(1, found + 1)))
