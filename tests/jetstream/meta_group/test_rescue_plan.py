"""Which groups a rescue concerns, on which server each goes on, and why it is refused."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest

from natsd.jetstream.meta_group.assignments import (
    Assign,
    Assignment,
    Assignments,
    Dismiss,
    Introduce,
    Reassign,
    Remove,
)
from natsd.jetstream.meta_group.rescue_plan import Plan, Planner, Wish
from natsd.jetstream.meta_group.rescue_survey import Position, Report, RescueRefused, Survey
from natsd.raft.transport import member_id, server_key

NAMES = ("n1", "n2", "n3", "n4", "n5")
META = "_meta_X"


def members(names: tuple[str, ...], incarnation: int = 0) -> tuple[int, ...]:
    return tuple(member_id(server_key(name), incarnation) for name in names)


def at(index: int, term: int = 1, names: tuple[str, ...] = NAMES, problem: str = "") -> Position:
    return Position(index, term, 1, members(names), (), 10 * index, problem)


def stream(name: str, *servers: str) -> Assignment:
    config = msgspec.Raw(b'{"num_replicas":%d}' % len(servers))
    group = f"S-R{len(servers)}F-{name}" if len(servers) > 1 else ""
    return Assignment("A", name, config, 1, servers, group=group)


def assignments(*streams: Assignment) -> Assignments:
    found = Assignments(lambda _before, _after: None)
    for name in NAMES:
        found.make(Introduce(name))
    for each in streams:
        found.make(Assign(each))
    return found


def planned(
    state: Assignments,
    lost: tuple[str, ...],
    own: dict[str, Position],
    *others: Report,
    server: str = "n4",
    **wishes: object,
) -> Plan:
    numbers = count()
    survey = Survey(Report(server, META, own), None, state)
    wish = Wish(lost, **wishes)  # type: ignore[arg-type]  # fields of a wish
    planner = Planner(survey, others, wish, lambda size: next(numbers).to_bytes(size, "big"))
    return planner.plan()


def test_the_meta_group_and_the_streams_go_on_with_the_most_complete_logs() -> None:
    state = assignments(stream("S", *NAMES))
    own = {META: at(7), "S-R5F-S": at(9, term=1)}
    other = Report("n5", META, {META: at(6), "S-R5F-S": at(8, term=2)})
    plan = planned(state, ("n1", "n2", "n3"), own, other)
    assert not plan.refusals
    meta, rescued = plan.groups
    assert (meta.server, meta.last_index, meta.committed, meta.uncertain) == ("n4", 7, 1, 6)
    assert (rescued.server, rescued.last_term, rescued.last_sequence) == ("n5", 2, 80)
    reassigned = next(each for each in plan.changes if isinstance(each, Reassign)).stream
    assert reassigned.servers == ("n5", "n4")
    assert reassigned.founders == members(("n5",))
    assert reassigned.rescued_from == "S-R5F-S"
    assert reassigned.group == rescued.new_group != "S-R5F-S"
    lost = [Dismiss(name, is_lost=True) for name in ("n1", "n2", "n3")]
    assert plan.changes[-3:] == lost


def test_what_has_a_majority_is_left_to_the_cluster() -> None:
    state = assignments(stream("S", "n1", "n4", "n5"), stream("T", "n1", "n2", "n4"))
    own = {
        META: at(7),
        "S-R3F-S": at(9, names=("n1", "n4", "n5")),
        "S-R3F-T": at(9, names=("n1", "n2", "n4")),
    }
    plan = planned(state, ("n1", "n2"), own)
    assert [each.what for each in plan.groups] == ["stream 'A > T'"]
    assert plan.kept == ["stream 'A > S': n4, n5"]
    assert not plan.new_meta


def test_streams_without_a_server_are_named_and_deleted_only_on_request() -> None:
    state = assignments(stream("R1", "n1"), stream("S", "n1", "n2", "n3"), stream("L", "n4"))
    own = {META: at(7, names=("n1", "n2", "n3", "n4"))}
    plan = planned(state, ("n1", "n2", "n3"), own)
    assert [each.what for each in plan.gone] == ["stream 'A > R1'", "stream 'A > S'"]
    assert not any(isinstance(each, Remove) for each in plan.changes)
    plan = planned(state, ("n1", "n2", "n3"), own, drops_gone=True)
    removed = [each.name for each in plan.changes if isinstance(each, Remove)]
    assert removed == ["R1", "S"]


def test_every_server_that_is_left_must_have_reported() -> None:
    plan = planned(assignments(), ("n1", "n2", "n3"), {META: at(7)})
    assert plan.refusals == [
        "the meta group: n5 is neither lost nor known: add its report (--others)"
    ]


def test_the_meta_group_is_rescued_where_its_log_is_the_most_complete() -> None:
    other = Report("n5", META, {META: at(3, term=2)})
    plan = planned(assignments(), ("n1", "n2", "n3"), {META: at(7)}, other)
    [refusal] = plan.refusals
    assert refusal.startswith("n5 has the more complete log of the meta group, up to entry 3")


def test_a_damaged_log_is_never_chosen() -> None:
    state = assignments(stream("S", *NAMES))
    own = {META: at(7), "S-R5F-S": at(9, problem="its log here is damaged")}
    other = Report("n5", META, {META: at(7), "S-R5F-S": at(2)})
    plan = planned(state, ("n1", "n2", "n3"), own, other)
    assert plan.groups[1].server == "n5"
    assert plan.damaged == ["stream 'A > S': n4: its log here is damaged"]
    other = Report("n5", META, {META: at(7)})
    plan = planned(state, ("n1", "n2", "n3"), own, other)
    assert plan.refusals == ["stream 'A > S': n4: its log here is damaged"]


def test_a_member_that_lost_its_disk_is_not_the_one_that_is_left() -> None:
    state = assignments(stream("S", "n1", "n2", "n4"))
    state.make(Introduce("n2", "a nonce"))
    own = {META: at(7), "S-R3F-S": at(9, names=("n1", "n2", "n4"))}
    plan = planned(state, ("n1",), own)
    assert [(each.what, each.server) for each in plan.groups] == [("stream 'A > S'", "n4")]


@pytest.mark.parametrize(
    ("lost", "streams", "reason"),
    [
        (("n9",), (), "n9 is no server of this cluster; its servers are n1, n2, n3, n4, n5"),
        (("n4",), (), "n4 is not lost: there is its report"),
        (("n1",), (("A", "X"),), "there is no stream 'A > X'"),
    ],
)
def test_names_that_do_not_fit_are_refused(
    lost: tuple[str, ...], streams: tuple[tuple[str, str], ...], reason: str
) -> None:
    with pytest.raises(RescueRefused, match=reason):
        planned(assignments(), lost, {META: at(7)}, streams=streams)


def test_the_report_of_another_cluster_is_refused() -> None:
    with pytest.raises(RescueRefused, match="another meta group"):
        planned(assignments(), ("n1",), {META: at(7)}, Report("n5", "_meta_Y", {}))
