"""`default_js_domain`: which accounts and domains it may name, and the mappings it means."""

from __future__ import annotations

from typing import Any

import pytest

from natsd.config import OptionsError, make_options
from natsd.config.account_options import AccountOptions
from natsd.config.default_domains import domain_mappings, with_default_domains
from tests.config.keys import public_key

ACCOUNTS: dict[str, Any] = {"A": {"jetstream": True}, "B": {}, "S": {}}


@pytest.mark.parametrize(
    ("domains", "told"),
    [
        ({"A": "hub"}, 'default_js_domain contains account name "A" with enabled JetStream'),
        ({"X": "hub"}, 'references non existing account "X"'),
        ({"S": "hub"}, 'system account "S" can not be in default_js_domain'),
        ({"B": "a b"}, 'contains account "B" with invalid domain name "a b"'),
        ({"B": "a."}, 'contains account "B" with invalid domain name "a."'),
    ],
)
def test_what_is_refused(domains: dict[str, str], told: str) -> None:
    with pytest.raises(OptionsError) as caught:
        make_options(accounts=ACCOUNTS, system_account="S", default_js_domain=domains)
    assert told in str(caught.value)


@pytest.mark.parametrize("domains", [{"A": ""}, {"B": "hub"}, {"$G": "hub"}])
def test_what_is_allowed(domains: dict[str, str]) -> None:
    options = make_options(accounts=ACCOUNTS, system_account="S", default_js_domain=domains)
    assert options.default_js_domain == domains


def test_accounts_of_jwts_are_named_by_their_keys() -> None:
    keys = [public_key("O")]
    assert make_options(trusted_keys=keys, default_js_domain={public_key("A"): "hub"})
    with pytest.raises(OptionsError, match="not a valid public account nkey"):
        make_options(trusted_keys=keys, default_js_domain={"B": "hub"})


def test_accounts_without_jetstream_get_mappings() -> None:
    """The mappings of the account itself come first."""
    accounts = make_options(
        accounts={**ACCOUNTS, "B": {"mappings": {"$JS.API.INFO": "own"}}}
    ).accounts
    result = with_default_domains(accounts, {"A": "hub", "B": "hub", "N": "hub", "S": ""})
    assert result["A"] == accounts["A"]
    assert result["S"] == accounts["S"]
    assert result["N"].mappings == domain_mappings("hub")
    mappings = result["B"].mappings
    assert [each.destination for each in mappings["$JS.API.INFO"]] == ["own"]
    targets = {source: each[0].destination for source, each in domain_mappings("hub").items()}
    assert targets["$JS.API.STREAM.>"] == "$JS.hub.API.STREAM.>"
    assert targets["$KV.>"] == "$JS.hub.API.$KV.>"
    assert AccountOptions(mappings=targets)  # each of them is a mapping that may be configured
