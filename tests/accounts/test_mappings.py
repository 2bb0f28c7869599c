"""Subject mappings of an account: which one decides, weights, loss, clusters."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from natsd.accounts.mappings import check_mappings, make_mappings
from natsd.config.mapping_options import MappingDestination, read_mappings
from natsd.core.routing import SubjectMappings
from tests.accounts.shared import account, serving


def mappings(given: dict[str, Any], cluster: str = "") -> SubjectMappings:
    made = make_mappings(read_mappings(given), cluster)
    assert made is not None
    return made


def test_there_are_none() -> None:
    assert make_mappings({}) is None


@pytest.mark.parametrize(
    ("subject", "mapped"),
    [
        ("a", "z"),
        ("a.b", "exact"),
        ("a.c", "w.c"),
        ("a.c.d", "t.c.d"),
        ("b", None),
        ("same", None),
        ("p.7", "p.7.1"),
        ("a..b", None),
    ],
)
def test_an_exact_source_decides_then_the_first_that_matches(
    subject: str, mapped: str | None
) -> None:
    given = {"a.*": "w.$1", "a.>": "t.>", "a.b": "exact", "a": "z", "same": "same"}
    made = mappings(given | {"p.*": "p.$1.{{partition(5,1)}}"})
    assert [made.mapped(subject) for _ in range(2)] == [mapped] * 2


def draws(made: SubjectMappings, subject: str, count: int = 4000) -> Counter[str | None]:
    return Counter(made.mapped(subject) for _ in range(count))


def test_weights_share_out_the_messages_and_the_rest_keep_their_subject() -> None:
    found = draws(mappings({"a": [weighted("b", 20), weighted("c", 30)]}), "a")
    assert set(found) == {"b", "c", None}
    assert 600 < found["b"] < 1000
    assert 950 < found["c"] < 1450


def test_a_source_among_its_destinations_loses_the_rest() -> None:
    found = draws(mappings({"a": [weighted("a", 50)]}), "a")
    assert set(found) == {None, ""}
    assert 1700 < found[""] < 2300


def test_destinations_of_the_own_cluster_replace_the_others() -> None:
    given = {"a": [weighted("b", 100), weighted("c", 100, cluster="west")]}
    assert mappings(given).mapped("a") == "b"
    assert mappings(given, "east").mapped("a") == "b"
    assert mappings(given, "west").mapped("a") == "c"
    assert mappings({"a": [weighted("c", 100, cluster="west")]}).mapped("a") is None


def test_random_functions_are_drawn_for_each_message() -> None:
    found = draws(mappings({"a.*": "b.$1.{{random(3)}}"}), "a.x", 300)
    assert set(found) == {"b.x.0", "b.x.1", "b.x.2"}


def test_many_subjects_are_remembered_apart() -> None:
    made = mappings({"a.*": "b.$1"})
    for _ in range(2):
        for number in range(2000):
            assert made.mapped(f"a.{number}") == f"b.{number}"


@pytest.mark.parametrize(
    ("source", "destinations", "expected"),
    [
        ("a", [MappingDestination(destination="b")] * 2, 'duplicate entry for "b"'),
        (
            "a",
            [MappingDestination(destination=name, weight=60) for name in "bc"],
            "total weight needs to be <= 100",
        ),
        (
            "a",
            [MappingDestination(destination="b..c")],
            "invalid mapping destination: invalid transform",
        ),
        (
            "a.*",
            [MappingDestination(destination="b.{{none(1)}}")],
            "invalid mapping destination: unknown function in {{none(1)}}",
        ),
        ("a.*", [MappingDestination(destination="b.*")], "invalid subject"),
    ],
)
def test_what_is_wrong(source: str, destinations: list[MappingDestination], expected: str) -> None:
    assert list(check_mappings({source: tuple(destinations)})) == [
        (source, f'Error adding mapping for "{source}" : {expected}')
    ]


def weighted(destination: str, weight: int, **more: str) -> dict[str, Any]:
    return {"destination": destination, "weight": weight, **more}


def test_a_publish_is_mapped_before_it_is_matched() -> None:
    with serving(A=account(mappings={"orders.*": "v2.orders.$1"})) as s:
        reader, writer = s.join("A"), s.join("A")
        reader.subscribe(">")
        for number in (1, 1, 2, 1):
            writer.pub(f"orders.{number}")
            assert reader.got().subject == f"v2.orders.{number}"
        writer.pub("other")
        assert reader.got().subject == "other"


def test_a_lost_request_gets_503_as_if_nobody_listened() -> None:
    with serving(A=account(mappings={"a": [weighted("a", 0)]})) as s:
        member = s.join("A")
        member.subscribe(">")
        member.request("a", "in")
        assert member.got().headers == "NATS/1.0 503\r\nNats-Subject: \r\n\r\n"


def test_mappings_at_the_top_are_those_of_the_default_account() -> None:
    with serving(A=account(), mappings={"a": "b"}) as s:
        member = s.join("$G")
        member.subscribe(">")
        member.pub("a")
        assert member.got().subject == "b"


def test_a_request_from_another_account_is_mapped_there_too() -> None:
    with serving(
        A=account(exports=[{"service": "svc"}], mappings={"svc": "svc.v2"}),
        B=account({"service": {"account": "A", "subject": "svc"}}, mappings={"in": "in.v2"}),
    ) as s:
        responder, requestor = s.join("A"), s.join("B")
        responder.subscribe("svc.*")
        requestor.subscribe("in.*")
        requestor.request("svc", "in")
        request = responder.got()
        assert request.subject == "svc.v2"
        responder.pub(request.reply)
        assert requestor.got().subject == "in.v2"
