"""Names of clusters that meet."""

import pytest

from natsd.cluster.cluster_name import ClusterName, NameVerdict

MEETINGS = [
    (("a", False), ("a", False), NameVerdict.SAME, ("a", False)),
    (("a", False), ("b", False), NameVerdict.CONFLICT, ("a", False)),
    (("a", False), ("b", True), NameVerdict.CONFLICT, ("a", False)),
    (("b", True), ("a", False), NameVerdict.ADOPTED, ("a", False)),
    (("a", True), ("b", True), NameVerdict.ADOPTED, ("b", True)),
    (("b", True), ("a", True), NameVerdict.CONFLICT, ("b", True)),
]


@pytest.mark.parametrize(("ours", "theirs", "verdict", "after"), MEETINGS)
def test_names_meet(
    ours: tuple[str, bool],
    theirs: tuple[str, bool],
    verdict: NameVerdict,
    after: tuple[str, bool],
) -> None:
    name = ClusterName(*ours)
    assert name.meet(theirs[0], is_dynamic=theirs[1]) is verdict
    assert (name.name, name.is_dynamic) == after


def test_two_drawn_names_become_one() -> None:
    one, other = ClusterName("x", is_dynamic=True), ClusterName("y", is_dynamic=True)
    one.meet(other.name, is_dynamic=other.is_dynamic)
    other.meet(one.name, is_dynamic=one.is_dynamic)
    assert one == other
