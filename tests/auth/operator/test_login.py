"""Logins by JWT and signature (nats-server: processClientOrLeafAuthentication)."""

import base64
from collections.abc import Awaitable
from typing import Any

import pytest

from natsd.auth.operator.accounts import ClaimedAccounts
from natsd.auth.operator.login import OperatorLogins
from natsd.auth.operator.trust import read_trust
from natsd.auth.proxies import Proxies
from natsd.auth.verdict import JwtFacts, UserLimits, Verdict
from natsd.config import Options, make_options
from natsd.config.public_keys import Kind
from natsd.core.reasons import ClosedReason
from natsd.testing.jwts import ISSUED_AT, NO_USER_LIMITS, AccountKeys, Operator, UserKeys, key
from tests.auth.fakes import (
    NOW_NS,
    NOW_S,
    CountingResolver,
    FakeClient,
    FakeConnect,
    Listener,
    connect_as,
    sign,
)

OPERATOR = Operator()
A = OPERATOR.account("A")
PROXY = key(Kind.ACCOUNT, "proxy")
SCOPED = {
    "kind": "user_scope",
    "key": A.signing_key.public,
    "template": {**NO_USER_LIMITS, "pub": {"allow": ["u.{{name()}}"]}, "subs": 3},
}


def logins(*accounts: AccountKeys, **settings: Any) -> OperatorLogins:
    given = {"operators": [OPERATOR.jwt()], "resolver": "MEMORY", **settings}
    trust = read_trust(make_options(Options(), **given))
    resolver = CountingResolver({account.name: account.jwt for account in accounts})
    claimed = ClaimedAccounts(resolver, trust, Listener(), lambda: NOW_S)
    return OperatorLogins(claimed, trust, Proxies((PROXY.public,)), lambda: NOW_NS)


async def login(
    made: OperatorLogins, connect: FakeConnect, client: FakeClient | None = None
) -> Verdict:
    verdict = made.authenticate(client or FakeClient(), connect)
    return verdict if isinstance(verdict, Verdict) else await verdict


async def login_as(user: UserKeys, *accounts: AccountKeys, **settings: Any) -> Verdict:
    client = FakeClient()
    return await login(logins(*(accounts or (A,)), **settings), connect_as(user, client), client)


async def test_a_user_with_the_signature_of_its_key() -> None:
    user = A.user(tags=["t"], subs=5, payload=-1, exp=int(NOW_S) + 60)
    verdict = await login_as(user)
    public = user.key.public
    assert verdict == Verdict(
        A.name,
        None,
        user=public,
        label=f"jwt:{public}",
        expires_ns=(int(NOW_S) + 60) * 10**9,
        limits=UserLimits(5, -1),
        has_default_permissions=True,
        jwt=JwtFacts(
            jwt=user.jwt,
            user_key=public,
            issuer_key=A.name,
            account_key=A.name,
            issued_at=ISSUED_AT,
            name="derek",
            tags=("t",),
        ),
    )


async def test_only_the_first_login_of_an_account_waits() -> None:
    made, client, user = logins(A), FakeClient(), A.user()
    first = made.authenticate(client, connect_as(user, client))
    assert isinstance(first, Awaitable)
    await first
    assert isinstance(made.authenticate(client, connect_as(user, client)), Verdict)


async def test_plain_base64_is_a_signature_too() -> None:
    client, user = FakeClient(), A.user()
    signature = base64.b64encode(user.key.sign(client.nonce)).decode()
    verdict = await login(logins(A), FakeConnect(jwt=user.jwt, sig=signature), client)
    assert verdict.account == A.name


async def test_a_bearer_signs_nothing() -> None:
    user = A.user(bearer_token=True)
    assert (await login(logins(A), FakeConnect(jwt=user.jwt))).account == A.name


async def test_permissions_are_those_of_the_user_or_the_default_ones() -> None:
    account = OPERATOR.account("A", default_permissions={"pub": {"allow": ["d"]}})
    rules = (await login_as(A.user(), account)).permissions
    assert rules is not None
    assert rules.may_publish("d")
    assert not rules.may_publish("e")
    rules = (await login_as(A.user(pub={"allow": ["e"]}), account)).permissions
    assert rules is not None
    assert rules.may_publish("e")
    assert not rules.may_publish("d")


async def test_the_user_of_a_scoped_key_has_the_rights_of_its_template() -> None:
    account = OPERATOR.account("A", signing_keys=[SCOPED])
    user = A.user(by=A.signing_key, is_scoped=True)
    verdict = await login_as(user, account)
    assert verdict.permissions is not None
    assert verdict.permissions.publish_allow == ("u.derek",)
    assert verdict.limits == UserLimits(3, -1)
    verdict = await login_as(A.user(by=A.signing_key), account)
    assert "scoped users require no permissions" in verdict.reason


async def test_a_part_of_the_day_ends_the_login() -> None:
    user = A.user(times=[{"start": "00:00:00", "end": "23:59:59"}], times_location="UTC")
    verdict = await login_as(user)
    assert verdict.account == A.name
    assert verdict.expires_ns % (86400 * 10**9) == (86400 - 1) * 10**9


async def test_the_default_sentinel_stands_for_a_missing_jwt() -> None:
    sentinel = A.user(bearer_token=True)
    made = logins(A, default_sentinel=sentinel.jwt)
    assert made.needs_credentials
    for connect in (FakeConnect(), FakeConnect(jwt="eyJ.x"), FakeConnect(user="a", password="b")):
        verdict = await login(made, connect)
        assert verdict.user == sentinel.key.public
        assert verdict.jwt is not None
        assert verdict.jwt.is_bearer
    other = A.user("other")
    client = FakeClient()
    assert (await login(made, connect_as(other, client), client)).user == other.key.public


async def test_a_proxy_signs_for_users_that_need_it() -> None:
    client, user = FakeClient(), A.user(proxy_required=True)
    made = logins(A)
    refused = await login(made, connect_as(user, client), client)
    assert refused.closed_reason is ClosedReason.PROXY_REQUIRED
    through = connect_as(user, client, proxy_sig=sign(PROXY, client.nonce))
    verdict = await login(made, through, client)
    assert (verdict.account, verdict.proxy_key) == (A.name, PROXY.public)
    wrong = connect_as(user, client, proxy_sig=sign(user.key, client.nonce))
    refused = await login(made, wrong, client)
    assert refused.closed_reason is ClosedReason.PROXY_NOT_TRUSTED


REVOKED = {key(Kind.USER, "derek").public: ISSUED_AT}
OTHER_ACCOUNT = Operator(key(Kind.OPERATOR, "other"), key(Kind.OPERATOR, "x")).account("A")


@pytest.mark.parametrize(
    ("user", "account", "reason"),
    [
        (A.user(exp=int(NOW_S) - 1), A, "User JWT no longer valid: claim is expired"),
        (A.user(nbf=int(NOW_S) + 1), A, "claim is not yet valid"),
        (A.user(src=["192.168.0.0/16"]), A, "Bad src Ip 10.1.2.3"),
        (A.user(src=["x"]), A, "User JWT no longer valid: invalid cidr"),
        (A.user(allowed_connection_types=["MQTT"]), A, "Connection type not allowed"),
        (A.user(times=[{"start": "1:00:00", "end": "1:00:01"}]), A, "Outside connect times"),
        (A.user(by=A.signing_key), A, "User JWT issuer is not known"),
        (A.user(), OPERATOR.account("B"), "Account JWT lookup error: account missing"),
        (A.user(), OTHER_ACCOUNT, "Account JWT lookup error: account validation failed"),
        (A.user(), OPERATOR.account("A", revocations=REVOKED), "User authentication revoked"),
        (A.user(), OPERATOR.account("A", revocations={"*": ISSUED_AT}), "authentication revoked"),
        (
            A.user(bearer_token=True),
            OPERATOR.account("A", limits={"disallow_bearer": True}),
            "Account does not allow bearer tokens",
        ),
        (
            A.user(sub={"allow": ["a."]}),
            A,
            'User JWT no longer valid: subject "a." cannot start or end',
        ),
    ],
)
async def test_refused_users(user: UserKeys, account: AccountKeys, reason: str) -> None:
    verdict = await login_as(user, account)
    assert verdict.account is None
    assert reason in verdict.reason
    assert user.jwt not in verdict.reason


@pytest.mark.parametrize(
    ("connect", "reason"),
    [
        (FakeConnect(), "Authentication requires a user JWT"),
        (FakeConnect(user="derek", password="secret"), "Authentication requires a user JWT"),
        (FakeConnect(jwt="secret"), "User JWT not valid: expected 3 chunks"),
        (FakeConnect(jwt=A.jwt), "User JWT not valid: not user claim"),
        (FakeConnect(jwt=A.user().jwt), "Signature missing"),
        (FakeConnect(jwt=A.user().jwt, sig="?"), "Signature not valid base64"),
        (FakeConnect(jwt=A.user().jwt, sig="A" * 86), "Signature not verified"),
        (
            FakeConnect(jwt=A.user().jwt, sig=sign(A.user().key, b"another nonce")),
            "Signature not verified",
        ),
        (
            FakeConnect(jwt=A.user().jwt, sig=sign(A.key, FakeClient().nonce)),
            "Signature not verified",
        ),
    ],
)
async def test_refused_connects(connect: FakeConnect, reason: str) -> None:
    verdict = await login(logins(A), connect)
    assert verdict.account is None
    assert verdict.reason == reason


async def test_only_users_of_pinned_accounts() -> None:
    other = OPERATOR.account("B")
    made = logins(A, other, resolver_pinned_accounts=[A.name])
    client = FakeClient()
    assert (await login(made, connect_as(A.user(), client), client)).account == A.name
    refused = await login(made, connect_as(other.user(), client), client)
    assert "not listed as operator pinned account" in refused.reason
    assert made.pinned_refusals == 1
