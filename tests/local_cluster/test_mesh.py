"""How many connections two servers have, and what a mesh lacks. Reference §4.1."""

from typing import Any

import pytest

from natsd.config import make_options
from natsd.local_cluster.mesh import links_per_server, missing_links

ON = {"port": 6222}


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({}, 1),
        ({"cluster": ON}, 4),
        ({"cluster": {**ON, "pool_size": -1}}, 1),
        ({"cluster": {**ON, "pool_size": 0}}, 4),
        ({"cluster": {**ON, "pool_size": 1}}, 2),
        ({"cluster": {**ON, "pool_size": 5, "accounts": ["A", "$SYS"]}, "accounts": {"A": {}}}, 7),
        ({"cluster": ON, "accounts": {"S": {}}, "system_account": "S"}, 4),
        ({"cluster": ON, "no_system_account": True}, 3),
    ],
    ids=str,
)
def test_connections_to_each_server(settings: dict[str, Any], count: int) -> None:
    assert links_per_server(make_options(**settings)) == count


def test_a_mesh_is_complete_when_all_connections_are_there() -> None:
    expected = {"n1": 2, "n2": 2}
    assert missing_links({"n1": {"n2": 2}, "n2": {"n1": 2}}, expected) == []
    assert missing_links({"n1": {"n2": 1}, "n2": {}}, expected) == [
        "n1 has 1 of 2 connections to n2",
        "n2 has 0 of 2 connections to n1",
    ]


def test_connections_to_servers_of_no_interest_do_not_count() -> None:
    assert missing_links({"n1": {"n3": 1}}, {"n1": 1}) == []
