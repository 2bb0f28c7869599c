"""The settings of features that do not exist yet: they are checked, and refused if switched on.

A block that does not switch its feature on (no port, no remotes, no name of a gateway) is accepted,
as in nats-server, where such a block has no effect either.

Source: nats-server's `parseCluster`, `parseGateway`, `parseLeafNodes`, `parseWebsocket`,
`parseMQTT` (server/opts.go) and server/ocsp.go.
"""
# ruff: noqa: RUF009  each call declares a setting; nothing is shared between instances

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

from natsd.config.auth_options import PermissionsOptions, read_permissions
from natsd.config.authorization import AuthorizationOptions, read_authorization
from natsd.config.listen import with_listen
from natsd.config.settings import (
    NamedSections,
    OptionsError,
    Section,
    Settings,
    duration,
    flag,
    optional,
    read_items,
    read_named,
    section_field,
    section_of,
    text,
    texts,
    whole,
    word,
)
from natsd.config.tls_options import TlsOptions, read_tls

INT32_MAX: Final = 2**31 - 1
PORT_MAX: Final = 65535
_SECOND: Final = timedelta(seconds=1)
COMPRESSION: Final = (
    *("off", "disabled", "false", "no", "accept", "on", "true", "yes", "s2_auto", "auto"),
    *("s2_uncompressed", "s2_fast", "fast", "s2_better", "better", "s2_best", "best"),
)
WRITE_TIMEOUTS: Final = {"default": "default", "close": "close", "retry": "retry"}


def _port() -> Any:
    return whole(0, -1, PORT_MAX, "port to listen on; -1: the system picks, 0: none")


def _tls() -> Any:
    return optional(read_tls, "TLS of these connections")


def _login() -> Any:
    return section_field(AuthorizationOptions(), read_authorization, "credentials")


def _read_compression(given: object) -> str:
    if isinstance(given, Mapping):
        given = {str(name).lower(): value for name, value in given.items()}.get("mode", "")
    mode = str(given).lower()
    if mode not in COMPRESSION:
        raise OptionsError(f'unsupported compression mode "{given}"')
    return mode


def _compression() -> Any:
    return section_field("accept", _read_compression, "compression of these connections")


def _read_url(given: object) -> str:
    from urllib.parse import urlsplit

    if not isinstance(given, str) or not urlsplit(given).netloc:
        raise OptionsError("must be a URL such as nats://host:port")
    return given


def _read_urls(given: object) -> tuple[str, ...]:
    return read_items([given] if isinstance(given, str) else given, _read_url, "URLs")


def _urls() -> Any:
    return section_field((), _read_urls, "addresses of other servers", is_secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions(Settings):
    """Routes to the other servers of the cluster."""

    name: str = text("", "name of the cluster, without spaces")
    host: str = text("", "address to listen on")
    port: int = _port()
    authorization: AuthorizationOptions = _login()
    permissions: PermissionsOptions | None = optional(read_permissions, "subjects that pass")
    routes: tuple[str, ...] = _urls()
    tls: TlsOptions | None = _tls()
    advertise: str = text("", "address that other servers are told")
    no_advertise: bool = flag(False, "do not tell clients about the other servers")
    connect_retries: int = whole(0, 0, INT32_MAX, "attempts to connect to an implicit route")
    connect_backoff: bool = flag(False, "wait longer after each attempt")
    pool_size: int = whole(3, -1, INT32_MAX, "connections to each server")
    accounts: tuple[str, ...] = texts("accounts with a connection of their own")
    compression: str = _compression()
    ping_interval: timedelta = duration(timedelta(minutes=2), "how often a silent peer is pinged")
    ping_max: int = whole(2, 0, INT32_MAX, "unanswered pings until a connection is stale")
    write_deadline: timedelta = duration(timedelta(seconds=10), "how long a write may be blocked")
    write_timeout: str = word("default", WRITE_TIMEOUTS, "what happens after the write deadline")

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        if " " in self.name:
            raise OptionsError("cluster name cannot contain spaces or new lines", setting="name")
        if self.authorization.users:
            raise OptionsError(
                "Cluster authorization does not allow multiple users", setting="authorization"
            )
        if self.authorization.token:
            raise OptionsError(
                "Cluster authorization does not support tokens", setting="authorization"
            )
        if self.authorization.auth_callout:
            raise OptionsError(
                "Cluster authorization does not support callouts", setting="authorization"
            )

    @property
    def is_on(self) -> bool:
        """Whether the server would listen for other servers, or connect to them."""
        return self.port != 0 or bool(self.routes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteGateway(Settings):
    """Another cluster."""

    name: str = text("", "name of the cluster")
    url: tuple[str, ...] = _urls()
    tls: TlsOptions | None = _tls()


_read_gateway: Callable[[object], RemoteGateway] = partial(
    section_of, RemoteGateway, aliases={"urls": "url"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions(Settings):
    """Connections to other clusters."""

    name: str = text("", "name of this cluster")
    host: str = text("", "address to listen on")
    port: int = _port()
    authorization: AuthorizationOptions = _login()
    tls: TlsOptions | None = _tls()
    advertise: str = text("", "address that other clusters are told")
    connect_retries: int = whole(0, 0, INT32_MAX, "attempts to connect to an implicit gateway")
    connect_backoff: bool = flag(False, "wait longer after each attempt")
    reject_unknown_cluster: bool = flag(False, "accept only configured clusters")
    gateways: tuple[RemoteGateway, ...] = section_field(
        (), partial(read_items, read_one=_read_gateway, what="gateways"), "other clusters"
    )
    write_deadline: timedelta = duration(timedelta(seconds=10), "how long a write may be blocked")
    write_timeout: str = word("default", WRITE_TIMEOUTS, "what happens after the write deadline")

    @property
    def is_on(self) -> bool:
        """Whether the server would be part of a supercluster."""
        return bool(self.name) or self.port != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafRemote(Settings):
    """A server that this one connects to as a leaf node."""

    url: tuple[str, ...] = _urls()
    account: str = text("", "local account")
    credentials: str = text("", "file with a user JWT and its seed")
    nkey: str = text("", "file with the seed of an nkey")
    tls: TlsOptions | None = _tls()
    hub: bool = flag(False, "the other side is the leaf node")
    deny_imports: tuple[str, ...] = texts("subjects that do not come in")
    deny_exports: tuple[str, ...] = texts("subjects that do not go out")
    no_randomize: bool = flag(False, "try the addresses in their order")
    ws_compression: bool = flag(False, "compress the WebSocket")
    ws_no_masking: bool = flag(False, "do not mask frames of the WebSocket")
    jetstream_cluster_migrate: object = section_field(
        False, lambda given: given, "step down as leader when the connection is lost"
    )
    isolate_leafnode_interest: bool = flag(False, "do not pass on interest of other leaf nodes")
    request_isolation: bool = flag(False, "ask the other side not to pass on interest")
    compression: str = _compression()
    first_info_timeout: timedelta = duration(_SECOND, "how long the first INFO may take")
    dial_timeout: timedelta = duration(_SECOND, "how long connecting may take")
    disabled: bool = flag(False, "do not connect")
    ignore_discovered_servers: bool = flag(False, "use only configured addresses")
    proxy: object = section_field(None, lambda given: given, "HTTP proxy", is_secret=True)


REMOTE_ALIASES: Final = {
    alias: name
    for name, aliases in {
        "url": "urls",
        "account": "local",
        "credentials": "creds",
        "nkey": "seed",
        "deny_imports": "deny_import",
        "deny_exports": "deny_export",
        "no_randomize": "dont_randomize",
        "ws_compression": "ws_compress websocket_compression websocket_compress",
        "ws_no_masking": "websocket_no_masking",
        "jetstream_cluster_migrate": "js_cluster_migrate",
        "isolate_leafnode_interest": "isolate",
    }.items()
    for alias in aliases.split()
}
_read_remote: Callable[[object], LeafRemote] = partial(
    section_of, LeafRemote, aliases=REMOTE_ALIASES
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafnodesOptions(Settings):
    """Leaf nodes, in both directions."""

    host: str = text("", "address to listen on")
    port: int = _port()
    authorization: object = section_field(None, lambda given: given, "logins", is_secret=True)
    tls: TlsOptions | None = _tls()
    advertise: str = text("", "address that leaf nodes are told")
    no_advertise: bool = flag(False, "do not tell leaf nodes about the other servers")
    min_version: str = text("", "lowest version of leaf nodes")
    compression: str = _compression()
    isolate_leafnode_interest: bool = flag(False, "do not pass on interest of other leaf nodes")
    reconnect: timedelta = duration(_SECOND, "pause before connecting again")
    dial_timeout: timedelta = duration(_SECOND, "how long connecting may take")
    remotes: tuple[LeafRemote, ...] = section_field(
        (), partial(read_items, read_one=_read_remote, what="remotes"), "servers to connect to"
    )
    write_deadline: timedelta = duration(timedelta(seconds=10), "how long a write may be blocked")
    write_timeout: str = word("default", WRITE_TIMEOUTS, "what happens after the write deadline")

    @property
    def is_on(self) -> bool:
        """Whether the server would accept leaf nodes or be one."""
        return self.port != 0 or bool(self.remotes)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebsocketOptions(Settings):
    """Clients that connect by WebSocket."""

    host: str = text("", "address to listen on")
    port: int = _port()
    advertise: str = text("", "address that clients are told")
    no_tls: bool = flag(False, "accept clients without TLS")
    tls: TlsOptions | None = _tls()
    same_origin: bool = flag(False, "accept only pages of the same host")
    allowed_origins: tuple[str, ...] = texts("hosts whose pages are accepted")
    handshake_timeout: timedelta = duration(timedelta(seconds=2), "how long a handshake may take")
    compression: bool = flag(False, "compress messages")
    authorization: AuthorizationOptions = _login()
    jwt_cookie: str = text("", "cookie that holds the user's JWT")
    user_cookie: str = text("", "cookie that holds the user name")
    pass_cookie: str = text("", "cookie that holds the password")
    token_cookie: str = text("", "cookie that holds the token")
    no_auth_user: str = text("", "user that clients without credentials are")
    headers: Mapping[str, object] = section_field(
        NamedSections[object](),
        partial(read_named, read_one=lambda given: given, what="headers"),
        "response headers",
    )
    ping_interval: timedelta = duration(timedelta(minutes=2), "how often a silent client is pinged")

    @property
    def is_on(self) -> bool:
        """Whether the server would accept WebSockets."""
        return self.port != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttOptions(Settings):
    """Clients that speak MQTT."""

    host: str = text("", "address to listen on")
    port: int = _port()
    tls: TlsOptions | None = _tls()
    authorization: AuthorizationOptions = _login()
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
    ClusterOptions: {"net": "host", "cluster_advertise": "advertise"},
    GatewayOptions: {"net": "host", "reject_unknown": "reject_unknown_cluster"},
    LeafnodesOptions: {
        "net": "host",
        "leafnode_advertise": "advertise",
        "minimum_version": "min_version",
        "isolate": "isolate_leafnode_interest",
        "reconnect_delay": "reconnect",
        "reconnect_interval": "reconnect",
    },
    WebsocketOptions: {
        "net": "host",
        "compress": "compression",
        "authentication": "authorization",
        "allowed_origin": "allowed_origins",
        "allow_origins": "allowed_origins",
        "allow_origin": "allowed_origins",
        "origins": "allowed_origins",
        "origin": "allowed_origins",
    },
    MqttOptions: {
        "net": "host",
        "authentication": "authorization",
        "ackwait": "ack_wait",
        "api_timeout": "js_api_timeout",
        "max_pending": "max_ack_pending",
        "max_inflight": "max_ack_pending",
        "consumer_auto_cleanup": "consumer_inactive_threshold",
    },
    OcspOptions: {"url": "urls"},
}


def read_block(kind: type[Section], given: object) -> Section:
    """Return a block of one of these classes from a mapping. Raises OptionsError."""
    if isinstance(given, Mapping):
        given = with_listen(given)
    return section_of(kind, given, aliases={**ALIASES[kind], "listen": "port"})


def read_ocsp(given: object) -> OcspOptions:
    """Return the settings of OCSP stapling from a boolean or a mapping. Raises OptionsError."""
    if isinstance(given, bool):
        return OcspOptions(mode="auto" if given else "never")
    return read_block(OcspOptions, given)
