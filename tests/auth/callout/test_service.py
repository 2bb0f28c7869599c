"""The exchange with an auth service (ADR-26; nats-server: processClientOrLeafCallout)."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from natsd.auth.callout.service import (
    AuthService,
    CalloutFailed,
    CalloutRoute,
    ServerKeys,
)
from natsd.auth.jwt.authorization import AuthorizationRequestClaims, AuthorizationResponseClaims
from natsd.auth.jwt.decode import decode_as
from natsd.auth.jwt.user import UserClaims
from natsd.auth.nkeys import KeyPair
from natsd.auth.xkeys import seal, unseal
from natsd.config.public_keys import Kind
from natsd.testing.jwts import NO_USER_LIMITS, key, token
from tests.auth.fakes import NOW_NS, FakeClient, FakeConnect

KEYS = ServerKeys(pair=key(Kind.SERVER, "server"), xkey=key(Kind.CURVE, "server"))
ISSUER = key(Kind.ACCOUNT, "issuer")
XKEY = key(Kind.CURVE, "service")


def user_jwt(public: str, *, by: KeyPair = ISSUER, **more: Any) -> str:
    return token("user", public, by, NO_USER_LIMITS, aud="APP", **more)


def response(request: AuthorizationRequestClaims, **body: Any) -> str:
    body = body or {"jwt": user_jwt(request.body.user_nkey)}
    public = request.body.user_nkey
    return token("authorization_response", public, ISSUER, body, aud=request.issuer)


@dataclass
class Service:
    """An auth service that answers with what a function makes of each request."""

    answer: Callable[[AuthorizationRequestClaims], str | bytes] = response
    xkey: KeyPair | None = None
    seals: bool = True
    requests: list[AuthorizationRequestClaims] = field(default_factory=list)
    headers: bytes = b""

    async def request(
        self, subject: str, payload: bytes = b"", *, timeout_s: float = 2.0, headers: bytes = b""
    ) -> bytes:
        assert (subject, timeout_s) == ("$SYS.REQ.USER.AUTH", 2.0)
        self.headers = headers
        if self.xkey is not None:
            payload = unseal(payload, self.xkey, KEYS.xkey.public)
        request = decode_as(AuthorizationRequestClaims, payload.decode())
        self.requests.append(request)
        answer = self.answer(request)
        data = answer.encode() if isinstance(answer, str) else answer
        if self.xkey is not None and self.seals:
            data = seal(data, self.xkey, KEYS.xkey.public)
        return data


async def ask(
    service: Service,
    client: FakeClient | None = None,
    connect: FakeConnect | None = None,
    check: Callable[[AuthorizationResponseClaims, bool], None] = lambda _r, _s: None,
) -> UserClaims:
    asked = AuthService(KEYS, {"name": "S", "host": "h", "version": "v"}, 2.0, lambda: NOW_NS)
    route = CalloutRoute(
        account="AUTH",
        client=service,
        subject_key=ISSUER.public,
        xkey="" if service.xkey is None else service.xkey.public,
    )
    connect = connect or FakeConnect(user="derek", password="secret")
    return await asked.ask(route, client or FakeClient(), connect, connect.user, "", check)


async def test_the_request_has_all_about_the_client() -> None:
    service = Service()
    connect = FakeConnect(
        user="derek",
        password="pw",
        auth_token="tk",
        nkey="UKEY",
        jwt="eyJ",
        sig="sig",
        name="app",
        lang="python3",
        version="2.0",
    )
    client = FakeClient(tls={"version": "1.3", "cipher": "X", "certs": ["PEM"]})
    user = await ask(service, client, connect)
    request = service.requests[0]
    assert (request.issuer, request.audience) == (KEYS.pair.public, "nats-authorization-request")
    assert request.subject == ISSUER.public
    assert request.expires == NOW_NS // 10**9 + 2
    body = request.body
    assert body.user_nkey == user.subject
    assert body.server_id == {"name": "S", "host": "h", "version": "v", "id": KEYS.pair.public}
    assert body.client_info == {
        "host": "10.1.2.3",
        "id": 7,
        "user": "derek",
        "name": "app",
        "kind": "Client",
        "type": "nats",
        "nonce": "a-random-nonce",
    }
    assert body.connect_opts == {
        "jwt": "eyJ",
        "nkey": "UKEY",
        "sig": "sig",
        "auth_token": "tk",
        "user": "derek",
        "pass": "pw",
        "name": "app",
        "lang": "python3",
        "version": "2.0",
        "protocol": 1,
    }
    assert body.client_tls == {"version": "1.3", "cipher": "X", "certs": ["PEM"]}
    assert (body.type, body.version) == ("authorization_request", 2)


async def test_a_nonce_is_told_only_with_a_signature() -> None:
    service = Service()
    await ask(service)
    assert "nonce" not in service.requests[0].body.client_info
    assert service.requests[0].body.client_tls is None


async def test_every_request_has_another_user_key() -> None:
    service = Service()
    keys = {(await ask(service)).subject for _ in range(3)}
    assert len(keys) == 3


@pytest.mark.parametrize("seals", [True, False])
async def test_with_an_xkey_requests_are_sealed_and_responses_may_be(seals: bool) -> None:
    service = Service(xkey=XKEY, seals=seals)
    told: list[bool] = []
    await ask(service, check=lambda _response, was_sealed: told.append(was_sealed))
    assert service.requests[0].body.server_id["xkey"] == KEYS.xkey.public
    header = f"NATS/1.0\r\nNats-Server-Xkey: {KEYS.xkey.public}\r\n\r\n"
    assert service.headers == header.encode()
    assert told == [seals]


OTHER = key(Kind.USER, "other").public


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda _r: b"", 'Auth callout violation: "no reason supplied" on account "AUTH"'),
        (lambda _r: "garbage", "The response of the auth service is not valid: expected 3 chunks"),
        (lambda r: user_jwt(r.body.user_nkey), "not authorization_response claim"),
        (
            lambda r: response(r, error="no such user"),
            "Auth callout service returned an error: no such user",
        ),
        (lambda r: response(r, error="x", jwt="y"), "Only Error or Jwt can be set"),
        (
            lambda r: token("authorization_response", OTHER, ISSUER, {"jwt": "x"}, aud=r.issuer),
            "response is not for expected user",
        ),
        (
            lambda r: token(
                "authorization_response",
                r.body.user_nkey,
                ISSUER,
                {"jwt": "x"},
                aud=key(Kind.SERVER, "other").public,
            ),
            "response is not for server",
        ),
        (lambda r: response(r, jwt="x"), "Error decoding user JWT: expected 3 chunks"),
        (
            lambda r: response(r, jwt=user_jwt(r.body.user_nkey, exp=5)),
            "Error validating user JWT: claim is expired",
        ),
        (lambda r: response(r, jwt=user_jwt(OTHER)), f'but got "{OTHER}" on account "AUTH"'),
    ],
)
async def test_answers_that_let_nobody_in(
    answer: Callable[[AuthorizationRequestClaims], str | bytes], text: str
) -> None:
    with pytest.raises(CalloutFailed) as raised:
        await ask(Service(answer))
    assert text in str(raised.value)
    assert "secret" not in str(raised.value)


async def test_an_answer_that_another_key_sealed() -> None:
    stranger = key(Kind.CURVE, "stranger")
    service = Service(
        lambda r: seal(response(r).encode(), stranger, KEYS.xkey.public), xkey=XKEY, seals=False
    )
    with pytest.raises(CalloutFailed, match="Error decrypting auth callout response on account"):
        await ask(service)


async def test_no_answer_in_time() -> None:
    class Silent(Service):
        async def request(self, *_args: Any, **_named: Any) -> bytes:
            raise TimeoutError

    with pytest.raises(CalloutFailed, match="response not received in time on account"):
        await ask(Silent())


async def test_the_issuer_is_asked_about() -> None:
    def refuse(claims: AuthorizationResponseClaims, _was_sealed: bool) -> None:
        raise CalloutFailed(f"unknown {claims.issuer}")

    with pytest.raises(CalloutFailed, match=f"unknown {ISSUER.public}"):
        await ask(Service(), check=refuse)


async def test_requests_at_a_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("natsd.auth.callout.service.REQUESTS_MAX", 0)
    with pytest.raises(CalloutFailed, match="too many clients wait"):
        await ask(Service())


def test_keys_are_not_shown() -> None:
    assert KEYS.pair.seed not in repr(KEYS)
    assert repr(KEYS.pair.secret) not in repr(KEYS)
    json.dumps({"id": KEYS.pair.public})
