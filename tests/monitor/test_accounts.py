"""Accounts in monitoring: their settings, their JWTs, their users.

Rows were compared with those of nats-server 2.14.5 for the same settings.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client as NatsClient

from natsd import Server
from natsd.auth import Credentials, Verdict
from natsd.auth.verdict import ConnectingClient, JwtFacts
from natsd.config.account_options import AccountOptions
from natsd.core.routing import PermissionRules
from natsd.monitor.jwt_facts import claims_of
from tests.monitor.probing import Probe, probing, probing_own
from tests.monitor.tenants import Tenants, ask, client_of, listen

CONNZ, STATZ = ("$SYS.REQ.ACCOUNT.{}.CONNZ", "$SYS.REQ.ACCOUNT.{}.STATZ")
ACCOUNTS: dict[str, Any] = {
    "A": {
        "exports": [
            {"stream": "st.>", "accounts": ["B"]},
            {"service": "svc.>"},
            {"service": "many", "response_type": "stream"},
            {"service": "timed", "latency": {"subject": "l"}},
        ],
        "mappings": {
            "m.*": "n.$1",
            "w": [
                {"destination": "w1", "weight": "50%"},
                {"destination": "w2", "weight": "30%"},
            ],
        },
    },
    "B": {
        "imports": [
            {"service": {"account": "A", "subject": "svc.x"}, "to": "local.x"},
            {"stream": {"account": "A", "subject": "st.>"}, "prefix": "pre"},
            {"stream": {"account": "A", "subject": "st.*"}, "to": "other.$1"},
        ]
    },
}


def jwt_of(claims: dict[str, Any]) -> str:
    """Return a JWT with these claims and without a valid signature."""
    header = {"typ": "JWT", "alg": "ed25519-nkey"}
    texts = (json.dumps(each).encode() for each in (header, claims))
    parts = [base64.urlsafe_b64encode(text).decode().rstrip("=") for text in texts]
    return ".".join([*parts, "c2lnbmF0dXJl"])


@pytest.fixture
async def probe() -> AsyncIterator[Probe]:
    async with Tenants(accounts=ACCOUNTS, http_port=-1) as server, probing_own(server) as probe:
        for name in "AB":
            server.accounts.find(name)
        yield probe


async def detail(probe: Probe, name: str) -> dict[str, Any]:
    found = (await probe.get(f"/accountz?acc={name}"))["account_detail"]
    assert isinstance(found, dict)
    return found


# ---- settings


async def test_exports_and_mappings_of_an_account(probe: Probe) -> None:
    account = await detail(probe, "A")
    assert account["exports"] == [
        {"subject": "svc.>", "type": "service", "response_type": "Singleton"},
        {
            "subject": "many",
            "type": "service",
            "response_type": "Streamed",
        },
        {
            "subject": "timed",
            "type": "service",
            "response_type": "Singleton",
            "service_latency": {"sampling": 100, "results": "l"},
        },
        {"subject": "st.>", "type": "stream", "approved_accounts": ["B"]},
    ]
    assert account["mappings"] == {
        "m.*": [{"subject": "n.$1", "weight": 100}],
        "w": [
            {"subject": "w", "weight": 20},
            {"subject": "w1", "weight": 50},
            {"subject": "w2", "weight": 30},
        ],
    }
    assert account["name_tag"] == "A"


async def test_imports_of_an_account(probe: Probe) -> None:
    imports = (await detail(probe, "B"))["imports"]
    state = {"invalid": False, "share": False, "tracking": False}
    assert imports[:3] == [
        {
            "subject": "st.>",
            "account": "A",
            "local_subject": "pre.st.>",
            "type": "stream",
            **state,
        },
        {
            "subject": "st.*",
            "account": "A",
            "local_subject": "other.*",
            "type": "stream",
            **state,
        },
        {
            "subject": "svc.x",
            "account": "A",
            "to": "local.x",
            "local_subject": "local.x",
            "type": "service",
            **state,
        },
    ]
    assert [(row["to"], row["subject"], row["share"]) for row in imports[3:]] == [
        ("$SYS.REQ.ACCOUNT.PING.CONNZ", CONNZ.format("B"), False),
        ("$SYS.REQ.SERVER.PING.CONNZ", CONNZ.format("B"), False),
        ("$SYS.REQ.ACCOUNT.PING.STATZ", STATZ.format("B"), False),
        ("$SYS.REQ.USER.INFO", "$SYS.REQ.USER.B.INFO", True),
    ]


async def test_an_import_that_is_not_in_force(probe: Probe) -> None:
    links = probe.server.links
    assert links is not None
    links.configure({"A": AccountOptions(exports=[{"stream": "st.*"}])})
    imports = (await detail(probe, "B"))["imports"][:3]
    invalid = {row["subject"]: row["invalid"] for row in imports}
    assert invalid == {"st.>": True, "st.*": False, "svc.x": True}


async def test_a_server_without_system_account_names_none() -> None:
    async with probing(no_system_account=True) as probe:
        answer = await probe.get("/accountz")
        assert (list(answer), answer["accounts"]) == (["server_id", "now", "accounts"], ["$G"])
        assert "imports" not in await detail(probe, "$G")
        assert "system_account" not in await probe.get("/varz")


# ---- JWTs


async def test_the_jwt_of_an_account(probe: Probe) -> None:
    claims = {
        "iss": "OPERATOR",
        "name": "Acme",
        "exp": 1_700_000_000,
        "nats": {"tags": ["gold"], "revocations": {"UABC": 1_600_000_000}},
    }
    jwt = jwt_of(claims)
    probe.server.accounts["A"].describe(None, jwt, "Acme")
    account = await detail(probe, "A")
    told = ("jwt", "issuer_key", "name_tag", "tags", "expired", "decoded_jwt")
    assert [account[name] for name in told] == [jwt, "OPERATOR", "Acme", ["gold"], True, claims]
    assert account["revoked_user"] == {"UABC": "2020-09-13T12:26:40Z"}
    rows = (await probe.get("/accstatz?unused=1"))["account_statz"]
    assert {row["acc"]: row["name"] for row in rows}["A"] == "Acme"


@pytest.mark.parametrize(
    "text", ["", "a.b", "a.b.c", "a.!!!!.c", "..", f"a.{'W' * 4000}.c", "a.bnVsbA.c"]
)
def test_what_is_no_jwt_has_no_claims(text: str) -> None:
    assert claims_of(text) == {}


class ByJwt:
    """Every user has a JWT; the user "bearer" a bearer token."""

    is_required = True
    needs_nonce = False
    needs_credentials = True

    def authenticate(self, client: ConnectingClient, connect: Credentials) -> Verdict:
        rules = PermissionRules(
            publish_allow=["foo", "_INBOX.>", "$SYS.>"],
            subscribe_allow=["_INBOX.>", "bar q"],
            subscribe_deny=["x"],
            responses_max=1,
            responses_ttl_ns=120_000_000_000,
        )
        is_bearer = connect.user == "bearer"
        facts = JwtFacts(
            jwt="" if is_bearer else jwt_of({}),
            is_bearer=is_bearer,
            issuer_key="SIGNER",
            user_key="UANN",
            account_key="A",
            issued_at=0,
            name="Ann",
            tags=("t1",),
        )
        late_ns = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp()) * 10**9
        return Verdict("A", rules, user="UANN", jwt=facts, expires_ns=late_ns)


class JwtServer(Tenants):
    """A server whose users have JWTs."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(ByJwt(), **settings)


async def test_the_jwt_of_a_user(tmp_path: Path) -> None:
    async with JwtServer(http_port=-1) as server, probing_own(server) as probe:
        for user in ("ann", "bearer"):
            async with client_of(server, user):
                for state in ("open", "closed"):
                    rows = await probe.connections(f"auth=1&state={state}")
                    if state == "open":
                        check_row(rows[-1], user)
                assert "jwt" not in (await probe.connections(""))[0]
        closed = await probe.connections("auth=1&state=closed")
        for row, user in zip(closed, ("ann", "bearer"), strict=True):
            check_row(row, user)


def check_row(row: dict[str, Any], user: str) -> None:
    members = ["authorized_user", "account", "jwt", "issuer_key", "name_tag", "tags"]
    if user == "bearer":
        members.remove("jwt")
    assert [name for name in row if name in {*members, "jwt"}] == members
    assert (row["authorized_user"], row["issuer_key"], row["tags"]) == ("UANN", "SIGNER", ["t1"])
    assert row["account"] == "A"


async def test_a_user_learns_its_permissions() -> None:
    async with JwtServer() as server, client_of(server, "ann") as client:
        info = (await ask(client, "$SYS.REQ.USER.INFO"))["data"]
    expires = info.pop("expires")
    assert expires > 0
    assert expires % 1_000_000_000 == 0
    assert info == {
        "user": "UANN",
        "account": "A",
        "account_name": "A",
        "user_name": "Ann",
        "permissions": {
            "publish": {"allow": ["foo", "_INBOX.>", "$SYS.>"]},
            "subscribe": {"allow": ["_INBOX.>", "bar q"], "deny": ["x"]},
            "responses": {"max": 1, "ttl": 120_000_000_000},
        },
    }


# ---- users and accounts of connections


async def test_connections_of_a_user_or_an_account(probe: Probe) -> None:
    server = probe.server
    async with client_of(server, "A/ann"), client_of(server, "B/bob"):
        pass
    async with client_of(server, "A/ann"), client_of(server, "A/amy"), client_of(server, "B/bob"):
        for query, users in (
            ("acc=A", {"A/ann", "A/amy"}),
            ("user=A/ann", {"A/ann"}),
            ("acc=B&state=closed", {"B/bob"}),
            ("acc=B&user=A/ann", set()),
            ("acc=Z", set()),
        ):
            answer = await probe.get(f"/connz?auth=1&{query}")
            rows = answer["connections"] or []
            assert {row["authorized_user"] for row in rows} == users
        subscriptions = await probe.get("/subsz?acc=A&subs=1")
        assert {row["account"] for row in subscriptions["subscriptions_list"]} == {"A"}


# ---- the server


async def test_settings_in_varz() -> None:
    settings: dict[str, Any] = {
        "server_tags": ["a:1", "b"],
        "server_metadata": {"zone": "z", "area": "a"},
        "user": "ann",
        "password": "never shown",
        "auth_timeout": 3,
    }
    async with probing(**settings) as probe:
        varz = await probe.get("/varz")
        assert (varz["auth_required"], varz["auth_timeout"]) == (True, 3)
        assert (varz["tags"], list(varz["metadata"])) == (["a:1", "b"], ["area", "zone"])
        assert not {"tls_required", "tls_verify", "proxies", "trusted_operators_jwt"} & set(varz)
        assert "never shown" not in json.dumps(varz)
        server: Server = probe.server
        assert list(server.describe())[3:6] == ["ver", "tags", "metadata"]


async def test_users_and_accounts_of_the_settings() -> None:
    accounts: dict[str, Any] = {
        "A": {
            "users": [
                {
                    "user": "amy",
                    "password": "a",
                    "permissions": {
                        "publish": ["$SYS.>", "_INBOX.>"],
                        "subscribe": {"allow": ["_INBOX.>", "bar q"], "deny": "x"},
                        "allow_responses": True,
                    },
                }
            ]
        },
        "SYS": {"users": [{"user": "sys", "password": "s"}]},
    }
    async with (
        Server(host="127.0.0.1", port=-1, accounts=accounts, system_account="SYS") as server,
        logged_in(server, "sys", "s") as admin,
    ):
        heard = await listen(admin, "$SYS.ACCOUNT.A.CONNECT")
        async with logged_in(server, "amy", "a") as amy:
            assert (await heard.body())["client"]["user"] == "amy"
            info = (await ask(amy, "$SYS.REQ.USER.INFO"))["data"]
            rows = (await ask(admin, "$SYS.REQ.SERVER.PING.CONNZ", {"auth": True}))["data"]
        assert (info["user"], info["account"]) == ("amy", "A")
        assert info["permissions"] == {
            "publish": {"allow": ["$SYS.>", "_INBOX.>"]},
            "subscribe": {"allow": ["_INBOX.>", "bar q"], "deny": ["x"]},
            "responses": {"max": 1, "ttl": 120_000_000_000},
        }
        logins = {(row["authorized_user"], row["account"]) for row in rows["connections"]}
        assert logins == {("amy", "A"), ("sys", "SYS")}


@asynccontextmanager
async def logged_in(server: Server, user: str, password: str) -> AsyncIterator[NatsClient]:
    client = await nats.connect(server.client_url, user=user, password=password)
    try:
        yield client
    finally:
        await client.close()
