"""What events, advisories and services tell of a client."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from natsd.auth import Verdict
from natsd.auth.verdict import JwtFacts
from natsd.clients import Client
from natsd.clients.client_info import client_info, shown_rtt_ns, user_name

FACTS = JwtFacts(
    jwt="a.b.c",
    user_key="UANN",
    issuer_key="SIGNER",
    account_key="A",
    issued_at=0,
    name="Ann",
    tags=("t",),
)


def client(**more: Any) -> Client:
    fields: dict[str, Any] = {
        **dict.fromkeys(("authorized_user", "name", "lang", "version"), ""),
        "start_ns": 5,
        "rtt_ns": 0,
        "ip": "10.0.0.1",
        "cid": 7,
        "kind": "Client",
        "verdict": None,
    }
    return cast("Client", SimpleNamespace(**(fields | more)))


def test_what_is_unknown_is_left_out() -> None:
    assert client_info(client(), "A", 1_000_000_000) == {
        "start": "1970-01-01T00:00:01.000000005Z",
        "host": "10.0.0.1",
        "id": 7,
        "acc": "A",
        "kind": "Client",
        "client_type": "nats",
    }
    assert user_name(client()) == ""


def test_the_order_of_all_members() -> None:
    everything = client(
        authorized_user="UANN",
        name="n",
        lang="go",
        version="1",
        rtt_ns=1,
        verdict=Verdict("A", jwt=FACTS),
    )
    info = client_info(
        everything, "A", 0, service="B", server="s", cluster="c", stop_ns=9, name_tag="tag"
    )
    assert list(info) == [
        *("start", "host", "id", "acc", "svc", "user", "name", "lang", "ver", "rtt", "server"),
        *("cluster", "stop", "jwt", "issuer_key", "name_tag", "tags", "kind", "client_type"),
    ]
    assert (info["jwt"], info["issuer_key"], info["tags"]) == ("a.b.c", "SIGNER", ("t",))
    assert user_name(everything) == "Ann"


@pytest.mark.parametrize(
    ("rtt_ns", "shown"),
    [
        (999, 999),
        (1_000, 1_000),
        (352_123, 352_000),
        (1_000_000, 1_000_000),
        (5_072_588, 5_072_588),
    ],
)
def test_round_trips_below_a_millisecond_have_whole_microseconds(rtt_ns: int, shown: int) -> None:
    assert shown_rtt_ns(rtt_ns) == shown
