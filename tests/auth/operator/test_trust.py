"""Whom the server trusts (nats-server: validateTrustedOperators)."""

from typing import Any

import pytest

from natsd.auth.operator.trust import read_trust
from natsd.config import Options, OptionsError, make_options
from natsd.config.public_keys import Kind
from natsd.testing.jwts import Operator, key

OPERATOR = Operator()
ACCOUNT = OPERATOR.account("A")
SYSTEM = OPERATOR.account("SYS")
KEY, SIGNING_KEY = OPERATOR.key.public, OPERATOR.signing_key.public


def options(**settings: Any) -> Options:
    return make_options(Options(), **{"resolver": "MEMORY", **settings})


def test_an_operator_and_its_signing_keys_sign_accounts() -> None:
    trust = read_trust(options(operators=[OPERATOR.jwt(system_account=SYSTEM.name)]))
    assert trust.keys == {KEY, SIGNING_KEY}
    assert trust.strict_keys == frozenset()
    assert trust.system_account == SYSTEM.name
    assert trust.claims.operator_keys == {KEY, SIGNING_KEY}


def test_with_strict_use_of_signing_keys_the_operator_signs_nothing() -> None:
    trust = read_trust(options(operators=[OPERATOR.jwt(strict_signing_key_usage=True)]))
    assert trust.keys == trust.strict_keys == {SIGNING_KEY}
    assert trust.claims.is_strict
    assert trust.claims.operator_keys == {SIGNING_KEY}


def test_bare_keys_are_trusted() -> None:
    assert read_trust(options(trusted_keys=[KEY])).keys == {KEY}


def test_the_system_account_is_pinned_with_the_others() -> None:
    given = options(
        operators=[OPERATOR.jwt(system_account=SYSTEM.name)],
        resolver_pinned_accounts=[ACCOUNT.name],
    )
    assert read_trust(given).pinned_accounts == {ACCOUNT.name, SYSTEM.name}


def test_the_sentinel_is_a_bearer_or_a_scoped_user() -> None:
    bearer = ACCOUNT.user(bearer_token=True).jwt
    scoped = ACCOUNT.user(by=ACCOUNT.signing_key, is_scoped=True).jwt
    for sentinel in (bearer, scoped):
        given = options(operators=[OPERATOR.jwt()], default_sentinel=sentinel)
        assert read_trust(given).sentinel == sentinel


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"operators": [ACCOUNT.jwt]}, "operator: the JWT is not valid: not operator claim"),
        ({"resolver": None}, "operators require an account resolver to be configured"),
        ({"accounts": {"A": {}}}, "operators do not allow Accounts to be configured directly"),
        (
            {"authorization": {"users": [{"user": "a", "password": "b"}]}},
            "operators do not allow users to be configured directly",
        ),
        (
            {
                "system_account": ACCOUNT.name,
                "operators": [OPERATOR.jwt(system_account=SYSTEM.name)],
            },
            "system_account in config and operator JWT must be identical",
        ),
        (
            {"resolver": {"type": "full", "dir": "/tmp/none"}},
            "the system account needs to be specified in configuration or the operator jwt",
        ),
        (
            {"operators": [OPERATOR.jwt(assert_server_version="99.0.0")]},
            "expected version 99.0.0 > server version",
        ),
        ({"operators": [OPERATOR.jwt(assert_server_version="x")]}, "expects version x got error"),
        (
            {"operators": [OPERATOR.jwt(signing_keys=[ACCOUNT.name])]},
            "are required to be a valid public operator nkey",
        ),
        ({"no_auth_user": "a"}, "no_auth_user not compatible with Trusted Operator"),
        ({"trusted_keys": [KEY]}, "conflicting options for 'TrustedKeys' and 'TrustedOperators'"),
        ({"default_sentinel": ACCOUNT.user().jwt}, "default sentinel must be a bearer token"),
        ({"default_sentinel": ACCOUNT.jwt}, "default sentinel JWT not valid"),
        (
            {"resolver_pinned_accounts": [key(Kind.USER, "u").public]},
            "is not a valid public account nkey",
        ),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionsError) as raised:
        read_trust(options(**{"operators": [OPERATOR.jwt()], **settings}))
    assert text in str(raised.value)
