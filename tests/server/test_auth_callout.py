"""Auth callout (ADR-26) over real sockets: a service of nats-py decides over the other clients."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from natsd import Server
from natsd.auth.callout.service import SUBJECT
from natsd.auth.jwt.authorization import AuthorizationRequestClaims
from natsd.auth.jwt.decode import decode_as
from natsd.auth.nkeys import KeyPair
from natsd.auth.xkeys import seal, unseal
from natsd.config.public_keys import Kind
from natsd.testing.certificates import Authority
from natsd.testing.jwts import ISSUED_AT, NO_USER_LIMITS, AccountKeys, Operator, key, token
from tests.server.operators import Lines, connected, ignore, lines, memory
from tests.waiting import DEADLINE_S, eventually_within

ISSUER = key(Kind.ACCOUNT, "issuer")
XKEY = key(Kind.CURVE, "service")
REFUSED = "-ERR 'Authorization Violation'"
OPERATOR = Operator()

Answer = Callable[[AuthorizationRequestClaims], dict[str, Any]]


@dataclass
class Service:
    """An auth service: `answer` makes the body of each response."""

    answer: Answer
    signer: KeyPair = ISSUER
    xkey: KeyPair | None = None
    requests: list[AuthorizationRequestClaims] = field(default_factory=list)
    may_answer: asyncio.Event | None = None  # it answers when this is set; None: at once

    async def serve(self, client: Client) -> None:
        async def received(message: Msg) -> None:
            data = message.data
            server_xkey = (message.headers or {}).get("Nats-Server-Xkey", "")
            if self.xkey is not None:
                data = unseal(data, self.xkey, server_xkey)
            request = decode_as(AuthorizationRequestClaims, data.decode())
            self.requests.append(request)
            if self.may_answer is not None:
                await self.may_answer.wait()
            reply = token(
                "authorization_response",
                request.body.user_nkey,
                self.signer,
                self.answer(request),
                aud=request.issuer,
            ).encode()
            if self.xkey is not None:
                reply = seal(reply, self.xkey, server_xkey)
            await message.respond(reply)

        await client.subscribe(SUBJECT, cb=received)
        await client.flush()


def allow(
    request: AuthorizationRequestClaims,
    *,
    account: str = "APP",
    by: KeyPair = ISSUER,
    name: str = "bob",
    **body: Any,
) -> dict[str, Any]:
    public = request.body.user_nkey
    body = {**NO_USER_LIMITS, **body}
    return {"jwt": token("user", public, by, body, aud=account, name=name)}


def by_password(request: AuthorizationRequestClaims) -> dict[str, Any]:
    if request.body.connect_opts.get("pass") != "right":
        return {"error": "wrong password"}
    return allow(request)


def configured(*, timeout: float = 5, tls: dict[str, Any] | None = None, **callout: Any) -> Server:
    return Server(
        host="127.0.0.1",
        port=-1,
        tls=tls,
        accounts={
            "AUTH": {"users": [{"user": "auth", "password": "pw"}]},
            "APP": {"default_permissions": {"publish": {"deny": ["secret"]}}},
            "OTHER": {"users": [{"user": "local", "password": "pw"}]},
        },
        authorization={
            "timeout": timeout,
            "auth_callout": {
                "issuer": ISSUER.public,
                "account": "AUTH",
                "auth_users": ["auth"],
                **callout,
            },
        },
    )


@asynccontextmanager
async def served(
    answer: Answer, *, xkey: KeyPair | None = None, signer: KeyPair = ISSUER, **callout: Any
) -> AsyncIterator[tuple[Server, Service, Client]]:
    if xkey is not None:
        callout["xkey"] = xkey.public
    async with configured(**callout) as server:
        client = await nats.connect(
            server.client_url, user="auth", password="pw", allow_reconnect=False, error_cb=ignore
        )
        service = Service(answer, signer, xkey)
        await service.serve(client)
        yield server, service, client
        await client.close()


@asynccontextmanager
async def logged_in(server: Server, **fields: Any) -> AsyncIterator[Client]:
    client = await nats.connect(server.client_url, allow_reconnect=False, error_cb=ignore, **fields)
    yield client
    await client.close()


@pytest.mark.parametrize("xkey", [None, XKEY], ids=["plain", "sealed"])
async def test_the_service_decides_by_the_password(xkey: KeyPair | None) -> None:
    async with served(by_password, xkey=xkey) as (server, service, _):
        async with logged_in(server, user="bob", password="right") as client:
            await client.flush()
            assert [each.account_name for each in server.clients.values()] == ["AUTH", "APP"]
        async with lines(server, None, user="bob", **{"pass": "wrong"}) as refused:
            assert await refused.next() == REFUSED
        about = service.requests[0].body
        assert about.server_id["id"] == server.id
        assert about.client_info["user"] == "bob"
        assert about.connect_opts["lang"] == "python3"
        assert ("xkey" in about.server_id) is (xkey is not None)


async def test_a_claimed_name_exempts_nobody() -> None:
    async with served(by_password) as (server, service, _):
        fields = {"user": "local", "pass": "pw", "nkey": "auth"}
        async with lines(server, None, **fields) as client:
            assert await client.next() == REFUSED
        assert len(service.requests) == 1


async def test_the_service_is_asked_about_clients_without_credentials() -> None:
    async with served(allow) as (server, service, _), logged_in(server) as client:
        await client.flush()
        assert service.requests[0].body.connect_opts.keys() >= {"lang", "protocol"}


async def test_its_user_has_the_permissions_of_its_jwt_or_the_default_ones() -> None:
    def answer(request: AuthorizationRequestClaims) -> dict[str, Any]:
        if request.body.connect_opts.get("user") == "own":
            return allow(request, pub={"allow": ["own"]})
        return allow(request)

    async with served(answer) as (server, _, _):
        for user, denied, text in (("own", "x", "x"), ("default", "secret", "secret")):
            async with lines(server, None, user=user) as client:
                assert await client.next() == "PONG"
                client.writer.write(f"PUB {denied} 0\r\n\r\n".encode())
                violation = f"-ERR 'Permissions Violation for Publish to \"{text}\"'"
                assert await client.next() == violation


async def test_members_of_the_callout_account_do_not_publish_requests() -> None:
    async with served(lambda request: allow(request, account="AUTH")) as (server, service, _):
        for fields in ({"user": "auth", "pass": "pw"}, {"user": "bob"}):
            async with lines(server, None, **fields) as client:
                assert await client.next() == "PONG"
                client.writer.write(f"PUB {SUBJECT} 0\r\n\r\n".encode())
                assert "Permissions Violation for Publish" in await client.next()
        assert len(service.requests) == 1


async def test_only_clients_of_allowed_accounts_are_asked_about() -> None:
    async with served(allow, allowed_accounts=["APP"]) as (server, service, _):
        async with logged_in(server, user="local", password="pw"):
            assert [each.account_name for each in server.clients.values()] == ["AUTH", "OTHER"]
        assert service.requests == []
        async with logged_in(server, user="bob"):
            assert len(service.requests) == 1
    async with served(allow) as (server, service, _):
        async with logged_in(server, user="local", password="pw"):
            assert [each.account_name for each in server.clients.values()] == ["AUTH", "APP"]
            assert len(service.requests) == 1


STRANGER = key(Kind.ACCOUNT, "stranger")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda r: allow(r, by=STRANGER), f'expected "{ISSUER.public}" got "{STRANGER.public}"'),
        (lambda r: allow(r, account="NONE"), 'No valid account "NONE" for auth callout response'),
        (lambda r: allow(r, account=""), 'No valid account "" for auth callout response'),
        (lambda r: allow(r, issuer_account=ISSUER.public), "attempted to use issuer_account"),
        (lambda r: allow(r, allowed_connection_types=["MQTT"]), "invalid connection type"),
        (
            lambda r: allow(r, times=[{"start": "1:00:00", "end": "1:00:00"}]),
            "outside of valid connect times",
        ),
        (lambda r: allow(r, proxy_required=True), "Proxy connection required"),
        (lambda _: {"error": "no"}, "Auth callout service returned an error: no"),
    ],
)
async def test_answers_that_let_nobody_in(
    answer: Answer, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(answer) as (server, _, _), lines(server, None, user="bob") as client:
        assert await client.next() == REFUSED
    assert any(text in line for line in caplog.messages)


async def test_the_callout_account_learns_of_refused_clients() -> None:
    async with served(by_password) as (server, _, client):
        events = await client.subscribe("$SYS.ACCOUNT.CLIENT.AUTH.ERR")
        await client.flush()
        async with lines(server, None, user="bob", **{"pass": "wrong"}) as refused:
            assert await refused.next() == REFUSED
        event = json.loads((await events.next_msg(timeout=10)).data)
        assert event["reason"] == "Authentication Failure"
        assert event["client"]["user"] == "bob"


async def test_without_a_service_nobody_else_logs_in(caplog: pytest.LogCaptureFixture) -> None:
    async with configured() as server:
        async with lines(server, None, user="bob", **{"pass": "hush"}) as client:
            assert await client.next() == REFUSED
        async with logged_in(server, user="auth", password="pw"):
            pass
    assert any("No authorization service listens" in line for line in caplog.messages)
    assert not any("hush" in line for line in caplog.messages)


async def test_a_service_that_does_not_answer_is_not_waited_for() -> None:
    async with configured(timeout=0.5) as server:
        async with logged_in(server, user="auth", password="pw") as silent:
            await silent.subscribe(SUBJECT)
            await silent.flush()
            async with lines(server, None, user="bob") as client:
                assert await client.next() in {REFUSED, "-ERR 'Authentication Timeout'"}


@pytest.mark.parametrize("verify", [False, True])
async def test_the_service_learns_of_tls(tmp_path: Path, verify: bool) -> None:
    authority = Authority(tmp_path)
    own = authority.sign("bob")
    tls = {**authority.sign("server").settings, "ca_file": str(authority.ca_file)}
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.load_cert_chain(own.cert_file, own.key_file)
    async with configured(tls={**tls, "verify": verify}) as server:
        url = f"tls://localhost:{server.client_port}"
        client = await nats.connect(url, user="auth", password="pw", tls=context, error_cb=ignore)
        service = Service(allow)
        await service.serve(client)
        other = await nats.connect(url, user="bob", tls=context, error_cb=ignore)
        told = service.requests[0].body.client_tls
        assert told is not None
        assert told["version"] == "1.3"
        assert told["cipher"].startswith("TLS_")
        pem = own.cert_file.read_text()
        if verify:
            assert told["verified_chains"][0][0] == pem
        else:
            assert "verified_chains" not in told
        await other.close()
        await client.close()


async def test_an_answer_counts_for_the_settings_that_are_there_when_it_comes() -> None:
    """The service is asked again after a reload that forbids more."""
    async with served(allow) as (server, service, _):
        may_answer = asyncio.Event()
        service.may_answer = may_answer
        async with lines(server, None, user="bob") as client:
            await eventually_within(lambda: len(service.requests) == 1)
            accounts = dict(server.options.accounts)
            rules = {"publish": {"deny": ["secret", "x"]}}
            server.reload(accounts=accounts | {"APP": {"default_permissions": rules}})
            may_answer.set()
            assert await client.next() == "PONG"
            client.writer.write(b"PUB x 0\r\n\r\n")
            assert await client.next() == "-ERR 'Permissions Violation for Publish to \"x\"'"
        assert len(service.requests) >= 2


async def test_info_has_the_key_that_requests_are_sealed_with() -> None:
    async with configured(xkey=XKEY.public) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
        info = json.loads((await reader.readline()).removeprefix(b"INFO "))
        assert info["xkey"].startswith("X")
        assert info["server_id"] == server.id
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def info_of(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Return the next INFO."""
    async with asyncio.timeout(DEADLINE_S):
        while not (line := await reader.readline()).startswith(b"INFO "):
            assert line, "closed by the server"
    return dict(json.loads(line.removeprefix(b"INFO ")))


async def test_a_reload_adds_a_callout() -> None:
    """The server had no keys before: it gets some, and INFO tells the public one."""
    users = {"AUTH": {"users": [{"user": "auth", "password": "pw"}]}, "APP": {}}
    callout = {
        "issuer": ISSUER.public,
        "account": "AUTH",
        "auth_users": ["auth"],
        "xkey": XKEY.public,
    }
    service = Service(by_password, xkey=XKEY)
    async with Server(host="127.0.0.1", port=-1, accounts=users) as server:
        client = await nats.connect(server.client_url, user="auth", password="pw")
        await service.serve(client)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
        assert "xkey" not in await info_of(reader)
        connect = {"user": "auth", "pass": "pw", "verbose": False, "protocol": 1}
        writer.write(f"CONNECT {json.dumps(connect)}\r\nPING\r\n".encode())
        assert (await info_of(reader))["connect_info"] is True
        async with lines(server, None, user="bob", **{"pass": "right"}) as bob:
            assert await bob.next() == REFUSED
        server.reload(authorization={"auth_callout": callout})
        xkey = (await info_of(reader))["xkey"]
        assert xkey.startswith("X")
        async with lines(server, None, user="bob", **{"pass": "right"}) as bob:
            assert await bob.next() == "PONG"
            assert [each.account_name for each in server.clients.values()][-1] == "APP"
            async with lines(server, None, user="bob", **{"pass": "wrong"}) as refused:
                assert await refused.next() == REFUSED
            assert {each.body.server_id["xkey"] for each in service.requests} == {xkey}
            assert {each.body.server_id["id"] for each in service.requests} == {
                service.requests[0].issuer
            }
            server.reload(authorization={"auth_callout": None})
            assert await bob.next() == REFUSED
        writer.close()
        await client.close()


# ---- operator mode

SYSTEM = OPERATOR.account("SYS")
APP = OPERATOR.account("APP")
SERVICE_USER = OPERATOR.account("AUTH").user("service")


def auth_account(*, revocations: dict[str, int] | None = None, **external: Any) -> AccountKeys:
    external = {"auth_users": [SERVICE_USER.key.public], **external}
    return OPERATOR.account("AUTH", authorization=external, revocations=revocations or {})


async def test_users_of_an_account_with_an_auth_service() -> None:
    auth = auth_account(allowed_accounts=[APP.name])
    sentinel = auth.user("sentinel", bearer_token=True)
    service = Service(lambda r: allow(r, by=APP.key), signer=auth.key)
    async with (
        memory(auth, APP, default_sentinel=sentinel.jwt) as server,
        connected(server, SERVICE_USER) as client,
    ):
        await service.serve(client)
        async with logged_in(server, user="bob", password="right"):
            names = [each.account_name for each in server.clients.values()]
            assert names == [auth.name, APP.name]
        about = service.requests[0].body
        assert about.connect_opts["jwt"] == sentinel.jwt
        assert about.connect_opts["user"] == "bob"
        assert about.client_info["user"] == sentinel.key.public


@pytest.mark.parametrize(
    ("external", "signer", "by", "text"),
    [
        ({}, None, APP.key, "not permitted as valid account option for auth callout"),
        ({"allowed_accounts": ["*"]}, STRANGER, APP.key, "Auth callout signing key is unknown"),
        ({"allowed_accounts": ["*"]}, None, STRANGER, "No valid account for auth callout response"),
    ],
)
async def test_answers_that_operator_mode_refuses(
    external: dict[str, Any],
    signer: KeyPair | None,
    by: KeyPair,
    text: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    auth = auth_account(**external)
    sentinel = auth.user("sentinel", bearer_token=True)
    service = Service(lambda r: allow(r, by=by), signer=signer or auth.key)
    async with (
        memory(auth, APP, default_sentinel=sentinel.jwt) as server,
        connected(server, SERVICE_USER) as client,
    ):
        await service.serve(client)
        async with lines(server, None, user="bob") as refused:
            assert await refused.next() == REFUSED
    assert any(text in line for line in caplog.messages)


async def test_a_sealed_exchange_in_operator_mode() -> None:
    auth = auth_account(allowed_accounts=["*"], xkey=XKEY.public)
    sentinel = auth.user("sentinel", bearer_token=True)
    service = Service(lambda r: allow(r, by=APP.key), signer=STRANGER, xkey=XKEY)
    async with (
        memory(auth, APP, default_sentinel=sentinel.jwt) as server,
        connected(server, SERVICE_USER) as client,
    ):
        await service.serve(client)
        async with logged_in(server, user="bob"):
            assert len(service.requests) == 1


async def test_who_is_revoked_while_the_service_is_asked_is_refused() -> None:
    auth = auth_account(allowed_accounts=[APP.name])
    user = auth.user("bob")
    revoked = auth_account(allowed_accounts=[APP.name], revocations={user.key.public: ISSUED_AT})
    service = Service(lambda r: allow(r, by=APP.key), signer=auth.key)
    service.may_answer = asyncio.Event()
    async with memory(auth, APP) as server, connected(server, SERVICE_USER) as client:
        await service.serve(client)
        async with lines(server, user) as bob:
            await eventually_within(lambda: len(service.requests) == 1)
            assert server.operator is not None
            await server.operator.claimed.changed(revoked.name, revoked.jwt)
            service.may_answer.set()
            assert await bob.next() == REFUSED


async def test_a_reload_changes_how_long_a_service_may_take() -> None:
    auth = auth_account(allowed_accounts=[APP.name])
    service = Service(lambda r: allow(r, by=APP.key), signer=auth.key)
    settings = {"authorization": {"timeout": 60}}
    async with memory(auth, APP, **settings) as server, connected(server, SERVICE_USER) as client:
        await service.serve(client)
        async with lines(server, auth.user("bob")) as bob:
            assert await bob.next() == "PONG"
            service.may_answer = asyncio.Event()
            server.reload(authorization={"timeout": 0.2})
            assert await bob.next() == REFUSED


async def test_new_default_permissions_hold_for_users_that_the_service_named() -> None:
    """It is not asked again. Users of its own account still must not publish requests."""

    def denying(subject: str) -> dict[str, Any]:
        return {"default_permissions": {"pub": {"deny": [subject]}}}

    async def is_denied(client: Lines, subject: str) -> bool:
        client.writer.write(f"PUB {subject} 0\r\n\r\nPING\r\n".encode())
        denied = await client.next() != "PONG"
        return denied and await client.next() == "PONG"

    external = {"auth_users": [SERVICE_USER.key.public], "allowed_accounts": [APP.name]}
    auth = auth_account(**external)
    service = Service(lambda r: allow(r, by=APP.key), signer=auth.key)
    async with memory(auth, APP) as server, connected(server, SERVICE_USER) as client:
        await service.serve(client)
        assert server.operator is not None
        change = server.operator.claimed.changed
        async with lines(server, auth.user("bob")) as bob, lines(server, SERVICE_USER) as other:
            assert [await bob.next(), await other.next()] == ["PONG", "PONG"]
            await change(APP.name, OPERATOR.account("APP", **denying("x")).jwt)
            assert await is_denied(bob, "x")
            changed = OPERATOR.account("AUTH", authorization=external, **denying("y"))
            await change(auth.name, changed.jwt)
            assert await is_denied(other, "y")
            assert await is_denied(other, SUBJECT)
            assert not await is_denied(bob, "y")
        assert len(service.requests) == 1
