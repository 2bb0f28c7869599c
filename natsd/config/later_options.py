"""The settings of features that do not exist yet: they are checked, and refused if switched on.

A block that does not switch its feature on (no port, no remotes, no name of a gateway) is accepted,
as in nats-server, where such a block has no effect either.

Source: nats-server's `parseGateway`, `parseWebsocket`, `parseMQTT`
(server/opts.go), server/ocsp.go and server/ocsp_responsecache.go.
"""
# ruff: noqa: RUF009  each call declares a setting; nothing is shared between instances

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

from natsd.config.authorization import TIMEOUT_DEFAULT, AuthorizationOptions
from natsd.config.listener_options import (
    Listener,
    ServerListener,
    check_login,
    check_name,
    read_listener,
    server_login,
    urls,
)
from natsd.config.sections import section_of
from natsd.config.settings import (
    NamedSections,
    Section,
    Settings,
    duration,
    flag,
    optional,
    read_items,
    read_named_texts,
    secret,
    section_field,
    text,
    texts,
    whole,
    word,
)
from natsd.config.tls_options import TlsOptions, read_server_tls

INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleLogin(Settings):
    """How clients of another protocol log in."""

    user: str = text("", "user name that clients must present")
    password: str = secret("password that goes with the user name")
    token: str = secret("token that clients must present")
    timeout: timedelta = duration(TIMEOUT_DEFAULT, "how long a client may take to log in")


def _simple_login() -> Any:
    aliases = {"username": "user", "pass": "password"}
    return section_field(
        SimpleLogin(), partial(section_of, SimpleLogin, aliases=aliases), "credentials"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteGateway(Settings):
    """Another cluster."""

    name: str = text("", "name of the cluster")
    url: tuple[str, ...] = urls()
    tls: TlsOptions | None = optional(read_server_tls, "TLS of these connections")


_read_gateway: Callable[[object], RemoteGateway] = partial(
    section_of, RemoteGateway, aliases={"urls": "url"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions(ServerListener):
    """Connections to other clusters."""

    name: str = text("", "name of this cluster")
    tls: TlsOptions | None = optional(read_server_tls, "TLS of these connections")
    authorization: AuthorizationOptions = server_login()
    connect_retries: int = whole(0, 0, INT32_MAX, "attempts to connect to an implicit gateway")
    connect_backoff: bool = flag(False, "wait longer after each attempt")
    reject_unknown_cluster: bool = flag(False, "accept only configured clusters")
    gateways: tuple[RemoteGateway, ...] = section_field(
        (), partial(read_items, read_one=_read_gateway, what="gateways"), "other clusters"
    )

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        check_name("gateway", self.name)
        check_login("Gateway", self.authorization)

    @property
    def is_on(self) -> bool:
        """Whether the server would be part of a supercluster."""
        return bool(self.name) or self.port != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WebsocketOptions(Listener):
    """Clients that connect by WebSocket."""

    advertise: str = text("", "address that clients are told")
    no_tls: bool = flag(False, "accept clients without TLS")
    same_origin: bool = flag(False, "accept only pages of the same host")
    allowed_origins: tuple[str, ...] = texts("hosts whose pages are accepted")
    handshake_timeout: timedelta = duration(timedelta(seconds=2), "how long a handshake may take")
    compression: bool = flag(False, "compress messages")
    authorization: SimpleLogin = _simple_login()
    jwt_cookie: str = text("", "cookie that holds the user's JWT")
    user_cookie: str = text("", "cookie that holds the user name")
    pass_cookie: str = text("", "cookie that holds the password")
    token_cookie: str = text("", "cookie that holds the token")
    no_auth_user: str = text("", "user that clients without credentials are")
    headers: Mapping[str, str] = section_field(
        NamedSections[str](), read_named_texts, "response headers"
    )
    ping_interval: timedelta = duration(timedelta(minutes=2), "how often a silent client is pinged")

    @property
    def is_on(self) -> bool:
        """Whether the server would accept WebSockets."""
        return self.port != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttOptions(Listener):
    """Clients that speak MQTT."""

    authorization: SimpleLogin = _simple_login()
    no_auth_user: str = text("", "user that clients without credentials are")
    ack_wait: timedelta = duration(timedelta(seconds=30), "when a message is sent again")
    js_api_timeout: timedelta = duration(timedelta(seconds=5), "how long a request may take")
    max_ack_pending: int = whole(1024, 0, 65535, "unacknowledged messages of a subscription")
    js_domain: str = text("", "JetStream domain of sessions")
    stream_replicas: int = whole(0, 0, 5, "replicas of the streams")
    consumer_replicas: int = whole(0, 0, 5, "has no effect")
    consumer_memory_storage: bool = flag(False, "keep consumers in memory")
    consumer_inactive_threshold: timedelta = duration(timedelta(0), "when consumers are removed")
    reject_qos2_publish: bool = flag(False, "refuse messages of QoS 2")
    downgrade_qos2_subscribe: bool = flag(False, "subscribe with QoS 1 in place of 2")

    @property
    def is_on(self) -> bool:
        """Whether the server would accept MQTT clients."""
        return self.port != 0


OCSP_MODES: Final = {mode: mode for mode in ("auto", "always", "must", "never")}


@dataclass(frozen=True, slots=True, kw_only=True)
class OcspOptions(Settings):
    """Stapling of OCSP responses to the server's certificate."""

    mode: str = word("auto", OCSP_MODES, "when responses are stapled")
    urls: tuple[str, ...] = texts("responders, in place of those of the certificate")

    @property
    def is_on(self) -> bool:
        """Whether the server would staple responses."""
        return self.mode != "never"


ALIASES: Final[dict[type, dict[str, str]]] = {
    GatewayOptions: {"reject_unknown": "reject_unknown_cluster"},
    WebsocketOptions: {
        "compress": "compression",
        "authentication": "authorization",
        "allowed_origin": "allowed_origins",
        "allow_origins": "allowed_origins",
        "allow_origin": "allowed_origins",
        "origins": "allowed_origins",
        "origin": "allowed_origins",
    },
    MqttOptions: {
        "authentication": "authorization",
        "ackwait": "ack_wait",
        "api_timeout": "js_api_timeout",
        "max_pending": "max_ack_pending",
        "max_inflight": "max_ack_pending",
        "consumer_auto_cleanup": "consumer_inactive_threshold",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OcspCacheOptions(Settings):
    """The cache of OCSP responses about certificates of clients."""

    type: str = word("local", {"local": "local", "none": "none"}, "where responses are kept")
    local_store: str = text("_rc_", "directory of the cache")
    preserve_revoked: bool = flag(False, "keep responses about revoked certificates")
    save_interval: timedelta = duration(timedelta(minutes=5), "how often the cache is saved")

    @property
    def is_on(self) -> bool:
        """Whether the server would keep responses."""
        return self.type != "none"


def read_block(kind: type[Section], given: object) -> Section:
    """Return a block of one of these classes from a mapping. Raises OptionsError."""
    return read_listener(kind, given, ALIASES[kind])


def read_ocsp(given: object) -> OcspOptions:
    """Return the settings of OCSP stapling from a boolean or a mapping. Raises OptionsError."""
    if isinstance(given, bool):
        return OcspOptions(mode="auto" if given else "never")
    return section_of(OcspOptions, given, aliases={"url": "urls"})


def read_ocsp_cache(given: object) -> OcspCacheOptions:
    """Return the settings of the cache from a boolean or a mapping. Raises OptionsError."""
    if isinstance(given, bool):
        return OcspCacheOptions(type="local" if given else "none")
    return section_of(OcspCacheOptions, given)
