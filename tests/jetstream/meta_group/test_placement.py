"""Placement: servers that suit, the best of them first, and why there are too few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.jetstream.meta_group.placement import Candidate, NoSuitablePeers, Wanted, place

GIB = 1 << 30


def servers(*tags: str, **settings: Any) -> list[Candidate]:
    """Return servers a, b, c, … of the cluster `east`, each with the tags of one argument."""
    return [
        Candidate(name, "east", frozenset(each.split()), **{"free_bytes": GIB, **settings})
        for name, each in zip("abcdefg", tags, strict=False)
    ]


def in_order(_candidates: list[Candidate]) -> None:
    """Leave servers that suit equally well in their order."""


def names(wanted: Wanted, among: list[Candidate]) -> str:
    return "".join(place(wanted, among, in_order))


def test_any_servers_of_the_cluster_will_do() -> None:
    among = [*servers("", "", ""), Candidate("z", "west", free_bytes=9 * GIB)]
    assert names(Wanted(3, "east"), among) == "abc"
    assert names(Wanted(1, "west"), among) == "z"


@pytest.mark.parametrize(
    ("tags", "expected"),
    [(["SSD"], "ac"), (["ssd", "!old"], "c"), (["!ssd"], "b")],
)
def test_tags_must_match(tags: list[str], expected: str) -> None:
    among = servers("ssd old", "hdd", "ssd")
    assert names(Wanted(len(expected), "east", tags), among) == expected


def test_the_fewest_replicated_streams_come_first_then_the_most_room() -> None:
    among = [
        Candidate("full", "east", free_bytes=1, num_replicated=0),
        Candidate("busy", "east", free_bytes=9, num_replicated=4),
        Candidate("wide", "east", free_bytes=5, num_replicated=0),
        Candidate("even", "east", free_bytes=5, num_replicated=0, num_streams=2),
        Candidate("gone", "east", free_bytes=9, is_online=False),
    ]
    assert place(Wanted(5, "east"), among, in_order) == ("wide", "even", "full", "busy", "gone")
    assert place(Wanted(1, "east"), among, in_order) == ("busy",)
    assert place(Wanted(3, "east", ignored={"wide"}), among, in_order) == ("even", "full", "busy")


def test_equal_servers_are_drawn() -> None:
    assert names(Wanted(1, "east"), servers("", "", "")) == "a"
    reverse: Callable[[list[Candidate]], None] = list.reverse
    assert place(Wanted(1, "east"), servers("", "", ""), reverse) == ("c",)


def test_replicas_that_are_there_stay() -> None:
    among = servers("", "", "", "")
    assert names(Wanted(3, "east", kept=["d"]), among) == "dab"
    assert names(Wanted(1, "east", kept=["d", "b"]), among) == "d"


def test_unique_tags_spread_the_replicas() -> None:
    among = servers("az:1", "az:1", "az:2", "", "az:3")
    assert names(Wanted(3, "east", unique_tag="az:"), among) == "ace"
    assert names(Wanted(2, "east", unique_tag="az:", kept=["b"]), among) == "bc"
    assert names(Wanted(2, "east", ["az:1"], unique_tag="az:"), among) == "ab"


@pytest.mark.parametrize(
    ("wanted", "among", "said"),
    [
        (Wanted(1, "east"), [], "jetstream not enabled in cluster"),
        (Wanted(3, "east"), servers("", ""), ""),
        (Wanted(1, "east", ["x"]), servers("", "y"), "tags not matched ['x']"),
        (Wanted(1, "east", ["!x"]), servers("x"), "tags excluded ['x']"),
        (Wanted(1, "east", max_bytes=2 * GIB), servers(""), "insufficient storage"),
        (Wanted(1, "east"), servers("!jetstream"), "exclude tag set"),
        (Wanted(2, "east", unique_tag="az"), servers("az1", "az1"), "server tag not unique"),
        (Wanted(1, "east", max_ha_assets=1), servers("", num_replicated=1), "miscellaneous issue"),
        (Wanted(1, "east"), servers("", is_online=False), "peer offline"),
    ],
)
def test_why_there_are_too_few(wanted: Wanted, among: list[Candidate], said: str) -> None:
    with pytest.raises(NoSuitablePeers) as raised:
        place(wanted, among, in_order)
    expected = "no suitable peers for placement" + (f", {said}" if said else "")
    assert str(raised.value) == expected


candidates = st.lists(
    st.builds(
        Candidate,
        name=st.sampled_from("abcdefgh"),
        cluster=st.sampled_from(["east", "east", "west"]),
        tags=st.frozensets(st.sampled_from(["x", "az1", "az2", "az3"]), max_size=2),
        is_online=st.booleans(),
        free_bytes=st.integers(0, 3),
        num_replicated=st.integers(0, 2),
    ),
    max_size=8,
    unique_by=lambda each: each.name,
)
wishes = st.builds(
    Wanted,
    replicas=st.sampled_from([1, 3, 5]),
    cluster=st.just("east"),
    tags=st.sampled_from([[], ["x"], ["!x"]]),
    max_bytes=st.integers(0, 2),
    unique_tag=st.sampled_from(["", "az"]),
)


@given(wishes, candidates)
def test_all_that_is_asked_for_holds_or_cannot_hold(wanted: Wanted, among: list[Candidate]) -> None:
    fit = [
        each
        for each in among
        if each.cluster == "east"
        and each.free_bytes >= wanted.max_bytes
        and ("x" in wanted.tags) <= ("x" in each.tags)
        and not ("!x" in wanted.tags and "x" in each.tags)
    ]
    zones = [min((tag for tag in each.tags if tag[:2] == "az"), default="") for each in fit]
    possible = len({zone for zone in zones if zone}) if wanted.unique_tag else len(fit)
    try:
        chosen = place(wanted, among, in_order)
    except NoSuitablePeers:
        online = sum(each.is_online for each in fit)
        assert possible < wanted.replicas or online < wanted.replicas or wanted.unique_tag
        return
    assert len(set(chosen)) == wanted.replicas <= possible
    assert set(chosen) <= {each.name for each in fit}
    if wanted.unique_tag:
        used = [zone for each, zone in zip(fit, zones, strict=True) if each.name in chosen]
        assert len(set(used)) == len(used)
    online = sum(each.is_online for each in fit if each.name in chosen)
    assert online >= wanted.replicas // 2 + 1
