"""The decision over a CONNECT, and what takes part in it.

    Client.connect_received ──▶ Authenticator.authenticate ──▶ Verdict               at once
                                          └────────────────▶ awaitable ──▶ Verdict   later

- An authenticator may answer at once, or with an awaitable: a bcrypt hash, a JWT resolver, an auth
  callout. While a verdict is awaited, nothing is read from the connection. If the settings change
  meanwhile, the verdict does not count, and the authenticator of the new settings is asked.
- An authenticator that raises refuses; the exception is logged.
- A verdict never changes. All logins of one user may share one verdict.
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from natsd.core.reasons import ClosedReason

if TYPE_CHECKING:
    from natsd.core.routing import PermissionRules


class UserLimits(NamedTuple):
    """Limits of one user, which come on top of those of account and server; -1: none."""

    subscriptions: int = -1
    payload: int = -1  # bytes in a message


NO_LIMITS: Final = UserLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtFacts:
    """What monitoring and events show of a user whose login is a JWT."""

    jwt: str  # empty if it needs no signature: whoever reads it could log in with it
    issuer_key: str  # public key that signed the user's JWT
    account_key: str  # public key of the account
    issued_at: int  # Unix seconds
    user_key: str = ""  # public key of the user
    name: str = ""  # `name` in the claims
    tags: tuple[str, ...] = ()
    is_bearer: bool = False  # the JWT alone is enough to log in


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision over a CONNECT."""

    account: str | None  # name of the client's account; None: the client is refused
    permissions: "PermissionRules | None" = None  # None: the client may do everything
    user: str = ""  # what monitoring shows: a name, a public key, "[REDACTED]" for a token
    label: str = ""  # what the log shows behind the account: user:derek, nkey:U…, jwt:U…, token
    expires_ns: int = 0  # Unix time at which the client is closed; 0: never
    limits: UserLimits = NO_LIMITS
    jwt: JwtFacts | None = None
    proxy_key: str = ""  # public key of the trusted proxy that signed; empty: none did
    has_default_permissions: bool = False  # those of its account: the user has none of its own
    # Of a client that is refused:
    reason: str = ""  # for the log at debug level; without any secret
    closed_reason: ClosedReason = ClosedReason.AUTHENTICATION_FAILURE
    event_account: str = ""  # account that is told, with the reason; empty: that of the client


REFUSED: Final = Verdict(None)


def refused(
    reason: str, closed_reason: ClosedReason = ClosedReason.AUTHENTICATION_FAILURE
) -> Verdict:
    """Return a verdict that refuses; the reason is logged at debug level."""
    return Verdict(None, reason=reason, closed_reason=closed_reason)


class Credentials(Protocol):
    """The fields of a CONNECT by which a client is recognized; empty: not given."""

    user: str
    password: str
    auth_token: str
    nkey: str
    jwt: str
    sig: str  # signature of the nonce, in base64
    proxy_sig: str  # the same by a trusted proxy
    name: str
    lang: str
    version: str
    protocol: int


class ConnectingClient(Protocol):
    """A client that has sent CONNECT, as an authenticator sees it."""

    @property
    def cid(self) -> int:
        """The connection id."""
        ...

    ip: str
    port: int

    @property
    def nonce(self) -> bytes:
        """The text that the client signs, as it stands in its INFO; empty: it got none."""
        ...

    @property
    def connection_type(self) -> str:
        """The name of its type in `allowed_connection_types`, such as STANDARD."""
        ...

    def peer_certificates(self) -> tuple[bytes, ...]:
        """Return the certificates that the client presented, in DER; empty: none."""
        ...

    def tls_facts(self) -> dict[str, Any] | None:
        """Return version, cipher and certificates of the connection, as an auth callout names them.

        None: the connection is not encrypted.
        """
        ...

    def debug(self, text: str) -> None:
        """Log at debug level, with the client's address."""
        ...


class Authenticator(Protocol):
    """Decides over each CONNECT."""

    @property
    def is_required(self) -> bool:
        """Whether a client must send a CONNECT before anything else."""
        ...

    @property
    def needs_credentials(self) -> bool:
        """Whether a client without credentials is refused."""
        ...

    @property
    def needs_nonce(self) -> bool:
        """Whether INFO has a nonce, which clients sign."""
        ...

    def authenticate(
        self, client: ConnectingClient, connect: Credentials
    ) -> Verdict | Awaitable[Verdict]:
        """Return whether, and as what, a client is accepted, or an awaitable of that."""
        ...
