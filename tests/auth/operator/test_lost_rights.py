"""Which connected clients a changed account closes.

Source: nats-server's `updateAccountClaimsWithRefresh` (server/accounts.go).
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from natsd.auth.jwt.user import UserClaims
from natsd.auth.operator.accounts import AccountEnd, ClaimedAccount, ClaimedAccounts
from natsd.auth.operator.login import jwt_facts
from natsd.auth.operator.lost_rights import close_all, close_lost
from natsd.auth.operator.trust import read_trust
from natsd.auth.operator.users import decode_user
from natsd.auth.verdict import Verdict
from natsd.config import Options, make_options
from natsd.config.public_keys import Kind
from natsd.core.routing import PermissionRules
from natsd.testing.jwts import ISSUED_AT, NO_USER_LIMITS, Operator, UserKeys, key
from tests.auth.fakes import NOW_S, CountingResolver, Listener

OPERATOR = Operator()
A = OPERATOR.account("A")
DEREK = key(Kind.USER, "derek").public
SIGNING_KEY = A.signing_key.public


@dataclass
class Connected:
    """A connected client that notes what happened to it."""

    user: UserKeys
    cid: int = 1
    happened: list[str] = field(default_factory=list)
    is_logged_in: bool = True

    @property
    def verdict(self) -> Verdict | None:
        if not self.is_logged_in:
            return None
        claims: UserClaims = decode_user(self.user.jwt)
        is_bearer = claims.body.bearer_token
        return Verdict(
            A.name,
            jwt=jwt_facts(self.user.jwt, claims, is_bearer=is_bearer),
            has_default_permissions=claims.body.is_empty,
        )

    def account_expired(self) -> None:
        self.happened.append("expired")

    def credentials_revoked(self) -> None:
        self.happened.append("revoked")

    def login_lost(self) -> None:
        self.happened.append("lost")

    def account_full(self) -> None:
        self.happened.append("full")

    def apply_account_limits(self) -> None:
        self.happened.append("limits")

    def apply_permissions(self, permissions: PermissionRules | None) -> None:
        self.happened.append(f"{permissions}")


def account(**body: Any) -> ClaimedAccount:
    options = make_options(Options(), operators=[OPERATOR.jwt()], resolver="MEMORY")
    resolver = CountingResolver({A.name: OPERATOR.account("A", **body).jwt})
    claimed = ClaimedAccounts(resolver, read_trust(options), Listener(), lambda: NOW_S)
    return asyncio.run(claimed.require(A.name))


def scope(**template: Any) -> dict[str, Any]:
    template = {**NO_USER_LIMITS, **template}
    return {"kind": "user_scope", "key": SIGNING_KEY, "template": template}


PLAIN, BEARER = A.user(), A.user(bearer_token=True)
SCOPED = A.user(by=A.signing_key, is_scoped=True)


@pytest.mark.parametrize(
    ("user", "before", "now", "expected"),
    [
        (PLAIN, {}, {"limits": {"subs": 5}}, "limits"),
        (PLAIN, {}, {"revocations": {DEREK: ISSUED_AT}}, "revoked"),
        (PLAIN, {}, {"revocations": {"*": ISSUED_AT}}, "revoked"),
        (PLAIN, {}, {"revocations": {DEREK: ISSUED_AT - 1}}, "limits"),
        (BEARER, {}, {"limits": {"disallow_bearer": True}}, "lost"),
        (PLAIN, {}, {"limits": {"disallow_bearer": True}}, "limits"),
        (SCOPED, {"signing_keys": [scope()]}, {}, "lost"),
        (SCOPED, {"signing_keys": [scope()]}, {"signing_keys": [scope()]}, "limits"),
        (SCOPED, {"signing_keys": [scope()]}, {"signing_keys": [scope(subs=9)]}, "lost"),
        (SCOPED, {"signing_keys": [SIGNING_KEY]}, {"signing_keys": [scope()]}, "lost"),
        (
            SCOPED,
            {"signing_keys": [scope(bearer_token=True)]},
            {"signing_keys": [scope(bearer_token=True)], "limits": {"disallow_bearer": True}},
            "lost",
        ),
    ],
)
def test_what_a_changed_account_does_to_a_client(
    user: UserKeys, before: dict[str, Any], now: dict[str, Any], expected: str
) -> None:
    client = Connected(user)
    close_lost([client], account(**before), account(**now))
    assert client.happened == [expected]


DEFAULTS = {"default_permissions": {"pub": {"deny": ["x"]}}}
OWN = A.user(pub={"allow": ["y"]})


@pytest.mark.parametrize(
    ("user", "before", "now", "expected"),
    [
        (PLAIN, {}, DEFAULTS, "PermissionRules(publish=None but ('x',), subscribe=None but ())"),
        (PLAIN, DEFAULTS, {}, "None"),
        (PLAIN, DEFAULTS, DEFAULTS, "limits"),
        (OWN, {}, DEFAULTS, "limits"),
        (PLAIN, {}, {**DEFAULTS, "revocations": {DEREK: ISSUED_AT}}, "revoked"),
    ],
)
def test_what_new_default_permissions_do_to_a_client(
    user: UserKeys, before: dict[str, Any], now: dict[str, Any], expected: str
) -> None:
    client = Connected(user)
    close_lost([client], account(**before), account(**now))
    assert client.happened == [expected]


def test_the_latest_clients_beyond_the_limit_are_closed() -> None:
    clients = [Connected(PLAIN, cid) for cid in (5, 3, 9, 1)]
    close_lost(clients, account(), account(limits={"conn": 2}))
    assert [client.happened for client in clients] == [["full"], ["limits"], ["full"], ["limits"]]


def test_a_client_that_has_not_logged_in_stays() -> None:
    client = Connected(PLAIN, is_logged_in=False)
    close_lost([client], account(), account(revocations={"*": ISSUED_AT}))
    assert client.happened == ["limits"]


def test_all_clients_of_an_account_that_ended_are_closed() -> None:
    clients = [Connected(PLAIN, 1), Connected(BEARER, 2)]
    close_all(clients, AccountEnd.DELETED)
    assert [client.happened for client in clients] == [["expired"], ["expired"]]
