"""Which imports are in force, and what is wrong with a configuration of accounts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from natsd.accounts.import_rules import Activation, Export, Import, ImportRules, sharing_errors
from natsd.config.account_options import AccountOptions, read_accounts
from tests.accounts.shared import account, service, stream


def options(**accounts: dict[str, Any]) -> dict[str, AccountOptions]:
    return dict(read_accounts(accounts))


def mistakes(accounts: Mapping[str, AccountOptions], **given: Any) -> list[str]:
    return [str(error) for error in sharing_errors(accounts, **given)]


PUBLIC = {"stream": "foo.>"}
ONLY_B = {"stream": "foo.>", "accounts": ["B"]}
OWN = {"stream": "to.*.>", "account_token_position": 2}

ALLOWED = [
    ([PUBLIC], "foo.>"),
    ([PUBLIC], "foo.bar"),
    ([ONLY_B], "foo.*"),
    ([OWN], "to.B.>"),
    ([OWN], "to.B.x"),
    ([PUBLIC, {"stream": "foo.bar", "accounts": ["B"]}], "foo.bar"),
]
REFUSED = [
    ([], "foo"),
    ([PUBLIC], ">"),
    ([PUBLIC], "foo"),
    ([{"service": "foo.>"}], "foo.x"),
    ([{"stream": "foo.>", "accounts": ["C"]}], "foo.x"),
    ([OWN], "to.C.x"),
    ([OWN], "to.*.>"),
    ([PUBLIC, {"stream": "foo.bar", "accounts": ["C"]}], "foo.bar"),
]


@pytest.mark.parametrize(("exports", "subject"), ALLOWED)
def test_allowed(exports: list[Any], subject: str) -> None:
    accounts = options(A=account(exports=exports), B=account(stream("A", subject)), C={})
    assert mistakes(accounts) == []


@pytest.mark.parametrize(("exports", "subject"), REFUSED)
def test_refused(exports: list[Any], subject: str) -> None:
    accounts = options(A=account(exports=exports), B=account(stream("A", subject)), C={})
    expected = f'Error adding stream import "{subject}": stream import not authorized'
    assert mistakes(accounts) == [expected]


WRONG = [
    (
        {"A": account(exports=[{"stream": "a", "accounts": ["X"]}])},
        '"X" account not defined for stream export',
    ),
    (
        {"A": account(exports=[{"service": "a.*", "account_token_position": 1}])},
        'Error adding service export "a.*": invalid subject',
    ),
    ({"A": account(stream("X", "a"))}, '"X" account not defined for stream import'),
    ({"A": account(service("X", "a"))}, '"X" account not defined for service import'),
    (
        {"A": account(service("B", "a")), "B": {}},
        'Error adding service import "a": service import not authorized',
    ),
    (
        {
            "A": account(stream("B", "a"), stream("B", "a", to="b")),
            "B": account(exports=[{"stream": "a"}]),
        },
        'Error adding stream import "a": stream import already exists',
    ),
    (
        {"A": account(stream("B", "a", prefix="x.*")), "B": account(exports=[{"stream": "a"}])},
        'Error adding stream import "a": stream import prefix can not contain wildcard tokens',
    ),
    (
        {
            "A": account(service("B", "a.*.*", to="b.$1")),
            "B": account(exports=[{"service": "a.>"}]),
        },
        'Error adding service import "a.*.*": failed to create mapping transform for service '
        'import subject from "b.$1" to "a.*.*": invalid mapping destination: not using all of '
        "the token wildcard(s) in b.$1",
    ),
    (
        {
            "A": account(stream("B", "x"), exports=[{"stream": "x"}]),
            "B": account(stream("A", "x"), exports=[{"stream": "x"}]),
        },
        'Error adding stream import "x": import forms a cycle',
    ),
    (
        {
            "A": account(service("B", "x"), exports=[{"service": "x"}]),
            "B": account(service("C", "x"), exports=[{"service": "x"}]),
            "C": account(service("A", "x"), exports=[{"service": "x"}]),
        },
        'Error adding service import "x": import forms a cycle',
    ),
    (
        {"A": account(exports=[{"service": "a", "latency": "a"}])},
        'Error adding service latency sampling for "a" on subject "a": invalid publish subject',
    ),
    (
        {"A": account(exports=[{"service": "a", "latency": "l", "response_type": "stream"}])},
        'Error adding service latency sampling for "a" on subject "l": bad service response type',
    ),
    (
        {"A": account(mappings={"a.*": "b.$2"})},
        'Error adding mapping for "a.*" : invalid mapping destination: wildcard index out of range '
        "in $2: [2]",
    ),
]


@pytest.mark.parametrize(("accounts", "expected"), WRONG)
def test_what_is_wrong_is_said_as_nats_server_does(
    accounts: dict[str, dict[str, Any]], expected: str
) -> None:
    assert mistakes(options(**accounts)) == [expected]


def test_latency_needs_a_system_account() -> None:
    accounts = options(A=account(exports=[{"service": "a", "latency": "l"}]))
    assert mistakes(accounts, has_system_account=False) == [
        'Error adding service latency sampling for "a": system account not setup'
    ]


def test_accounts_that_import_from_each_other_without_a_circle_are_fine() -> None:
    accounts = options(
        A=account(
            stream("B", "b.>"), service("B", "sb"), exports=[{"stream": "a.>"}, {"service": "sa"}]
        ),
        B=account(
            stream("A", "a.>"), service("A", "sa"), exports=[{"stream": "b.>"}, {"service": "sb"}]
        ),
    )
    assert mistakes(accounts) == []


def test_an_activation_token_is_checked_with_all_that_it_must_fit() -> None:
    asked: list[tuple[str, str, Import, Export]] = []

    def check(exporter: str, importer: str, given: Import, export: Export) -> Activation | None:
        asked.append((exporter, importer, given, export))
        return Activation(expires_ns=7) if given.token == "good" else None

    exports = [{"stream": "foo", "token_required": True}]
    accounts = options(
        A=account(exports=exports),
        B=account(stream("A", "foo", token="good")),
        C=account(stream("A", "foo", token="bad")),
        D=account(stream("A", "foo")),
    )
    rules = ImportRules(check)
    rules.options = accounts
    refused = {name: [str(why) for _, why in rules.judge(name)] for name in "BCD"}
    assert refused == {
        "B": [],
        "C": ["stream import not authorized"],
        "D": ["stream import not authorized"],
    }
    assert [permit.expires_ns for permit in rules.permits["B"]] == [7]
    assert asked[0] == ("A", "B", accounts["B"].imports[0], accounts["A"].exports[0])


def test_a_search_for_cycles_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("natsd.accounts.import_rules.CYCLE_DEPTH_MAX", 5)
    exports = [{"service": "x"}]
    accounts = {
        "A5": account(exports=exports),
        **{f"A{at}": account(service(f"A{at + 1}", "x"), exports=exports) for at in (4, 3, 2, 1)},
    }
    assert mistakes(options(**accounts)) == []
    accounts["A0"] = account(service("A1", "x"))
    assert mistakes(options(**accounts)) == [
        'Error adding service import "x": search cycle depth exhausted'
    ]
