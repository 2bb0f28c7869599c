"""The exchange with an auth service: a signed request, a signed response, both sealed on demand.

    $SYS.REQ.USER.AUTH, in the callout account:
      request   JWT of the server: a new user key, the client, its CONNECT, its TLS connection
      response  JWT of the account: a JWT for that user key, or an error

- A response counts only if it is for the user key of this request and for this server. The key is
  random and used once, so nobody can answer an old request again.
- With an `xkey` the request is sealed for it, and the header `Nats-Server-Xkey` has the public key
  that a response may be sealed for.
- A request waits as long as a client may take to log in. If nobody listens it fails at once.
- Passwords and tokens of clients are in the request, and in no log.

Source: ADR-26; nats-server's `processClientOrLeafCallout` (server/auth_callout.go).
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from natsd.auth.jwt.authorization import AuthorizationResponseClaims
from natsd.auth.jwt.decode import decode_as
from natsd.auth.jwt.token import BadToken, encode
from natsd.auth.jwt.user import UserClaims
from natsd.auth.nkeys import KeyPair
from natsd.auth.verdict import ConnectingClient, Credentials
from natsd.auth.xkeys import BadSealed, seal, unseal
from natsd.config.public_keys import BadNkey, Kind

SUBJECT: Final = "$SYS.REQ.USER.AUTH"
AUDIENCE: Final = "nats-authorization-request"
XKEY_HEADER: Final = "Nats-Server-Xkey"
JWT_PREFIX: Final = b"eyJ"
VERSION: Final = 2
REQUESTS_MAX: Final = 4096
SECOND_NS: Final = 1_000_000_000


class CalloutFailed(Exception):
    """The service refused a client, gave no valid answer, or none; the text is for the log."""


class CalloutClient(Protocol):
    """The internal client of the callout account."""

    async def request(
        self, subject: str, payload: bytes = b"", *, timeout_s: float = 2.0, headers: bytes = b""
    ) -> bytes:
        """Send a request and return the payload of the first reply."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKeys:
    """The secrets of a server: its public keys are its id, and the `xkey` of INFO."""

    pair: KeyPair
    xkey: KeyPair

    @classmethod
    def create(cls) -> "ServerKeys":
        """Return new random keys."""
        return cls(pair=KeyPair.create(Kind.SERVER), xkey=KeyPair.create(Kind.CURVE))


@dataclass(frozen=True, slots=True, kw_only=True)
class CalloutRoute:
    """Where one client is asked about."""

    account: str  # account in which the service listens
    client: CalloutClient  # internal client of that account
    subject_key: str  # whom the request is for: the issuer of responses
    xkey: str  # public key that the request is sealed for; empty: it is not sealed


class AuthService:
    """The requests of one server to auth services."""

    def __init__(
        self,
        keys: ServerKeys,
        server: Mapping[str, Any],
        timeout_s: float,
        now_ns: Callable[[], int],
    ) -> None:
        """Ask with these keys; `server` has the members of `server_id` besides id and xkey."""
        self._keys = keys
        self._public = keys.pair.public
        self._server = {"name": "", "host": "", **server, "id": self._public}
        self._timeout_s = timeout_s
        self._now_ns = now_ns
        self._pending = 0

    @property
    def server_id(self) -> str:
        """The public key of the server."""
        return self._public

    async def ask(
        self,
        route: CalloutRoute,
        client: ConnectingClient,
        connect: Credentials,
        user: str,
        jwt: str,
        check_issuer: Callable[[AuthorizationResponseClaims, bool], None],
    ) -> UserClaims:
        """Return the user that the service lets a client be. Raises CalloutFailed.

        `user` is as whom the client tries to log in; `jwt` replaces that of CONNECT if it is not
        empty. `check_issuer` gets the response, and whether it was sealed; it raises CalloutFailed
        if the issuer must not respond.
        """
        if self._pending >= REQUESTS_MAX:
            raise CalloutFailed("too many clients wait for the auth service")
        user_key = KeyPair.create(Kind.USER).public
        request = self._request(route, client, connect, user, jwt, user_key)
        self._pending += 1
        try:
            reply = await self._exchange(route, request)
        finally:
            self._pending -= 1
        response, was_sealed = self._opened(route, reply)
        if response.subject != user_key:
            raise CalloutFailed(
                "Auth callout violation: auth callout response is not for expected user"
            )
        if response.audience != self._public:
            raise CalloutFailed("Auth callout violation: auth callout response is not for server")
        if response.body.error:
            raise CalloutFailed(f"Auth callout service returned an error: {response.body.error}")
        check_issuer(response, was_sealed)
        return self._user(route, response.body.jwt, user_key)

    def _request(
        self,
        route: CalloutRoute,
        client: ConnectingClient,
        connect: Credentials,
        user: str,
        jwt: str,
        user_key: str,
    ) -> bytes:
        """Return the JWT that asks about a client."""
        now_s = self._now_ns() // SECOND_NS
        server = dict(self._server)
        if route.xkey:
            server["xkey"] = self._keys.xkey.public
        nonce = client.nonce.decode() if connect.sig else ""
        about = _given(
            host=client.ip, id=client.cid, user=user, name=connect.name, kind="Client",
            type="nats", nonce=nonce,
        )  # fmt: skip
        options = _given(
            jwt=jwt or connect.jwt, nkey=connect.nkey, sig=connect.sig,
            auth_token=connect.auth_token, user=connect.user, **{"pass": connect.password},
            name=connect.name, lang=connect.lang, version=connect.version,
        )  # fmt: skip
        body = {
            "server_id": server,
            "user_nkey": user_key,
            "client_info": about,
            "connect_opts": {**options, "protocol": connect.protocol},
            "type": "authorization_request",
            "version": VERSION,
        }
        tls = client.tls_facts()
        if tls is not None:
            body["client_tls"] = tls
        fields = {
            "aud": AUDIENCE,
            "exp": now_s + round(self._timeout_s),
            "jti": uuid.uuid4().hex.upper(),
            "iat": now_s,
            "iss": self._public,
            "sub": route.subject_key,
            "nats": body,
        }
        return encode(fields, self._keys.pair).encode()

    async def _exchange(self, route: CalloutRoute, request: bytes) -> bytes:
        """Send a request and return the reply."""
        headers = b""
        try:
            if route.xkey:
                request = seal(request, self._keys.xkey, route.xkey)
                public = self._keys.xkey.public
                headers = f"NATS/1.0\r\n{XKEY_HEADER}: {public}\r\n\r\n".encode()
            return await route.client.request(
                SUBJECT, request, timeout_s=self._timeout_s, headers=headers
            )
        except TimeoutError:
            raise CalloutFailed(
                f'Authorization callout response not received in time on account "{route.account}"'
            ) from None
        except BadNkey as error:
            raise CalloutFailed(f"Error encrypting auth request claim: {error}") from None

    def _opened(
        self, route: CalloutRoute, reply: bytes
    ) -> tuple[AuthorizationResponseClaims, bool]:
        """Return the claims of a reply, and whether they were sealed."""
        on_account = f'on account "{route.account}"'
        if not reply:
            raise CalloutFailed(f'Auth callout violation: "no reason supplied" {on_account}')
        was_sealed = bool(route.xkey) and not reply.startswith(JWT_PREFIX)
        try:
            if was_sealed:
                reply = unseal(reply, self._keys.xkey, route.xkey)
            claims = decode_as(AuthorizationResponseClaims, reply.decode("ascii", "replace"))
        except (BadSealed, BadNkey) as error:
            raise CalloutFailed(
                f"Error decrypting auth callout response {on_account}: {error}"
            ) from None
        except BadToken as error:
            raise CalloutFailed(f"The response of the auth service is not valid: {error}") from None
        issues = claims.issues(self._now_ns() / SECOND_NS)
        if issues.all:
            raise CalloutFailed(f"Authorization response had validation errors: {issues.all[0]}")
        return claims, was_sealed

    def _user(self, route: CalloutRoute, jwt: str, user_key: str) -> UserClaims:
        """Return the verified user of a response."""
        try:
            user = decode_as(UserClaims, jwt)
        except BadToken as error:
            raise CalloutFailed(f"Error decoding user JWT: {error}") from None
        issues = user.issues(self._now_ns() / SECOND_NS)
        if issues.all:
            raise CalloutFailed(f"Error validating user JWT: {issues.all[0]}")
        if user.subject != user_key:
            raise CalloutFailed(
                f'Expected authorized user of "{user_key}" but got "{user.subject}" '
                f'on account "{route.account}"'
            )
        return user


def _given(**fields: object) -> dict[str, object]:
    """Return the fields that are not empty."""
    return {name: value for name, value in fields.items() if value}
