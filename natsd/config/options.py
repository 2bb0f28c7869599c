"""All settings of the server, with their names, types, defaults and meanings.

- Names and defaults are those of nats-server's configuration file.
- An `Options` is frozen and valid: no other code needs to check it again.
- Invalid settings raise an `OptionsError` with one line of text.

`Options` is a plain dataclass because every start imports it: a pydantic model costs 0.12 s of the
0.25 s that a start may take.
"""
# ruff: noqa: RUF009  each call declares a setting; nothing is shared between instances

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from natsd.config.account_names import GLOBAL, SYSTEM
from natsd.config.authorization import (
    AFTER_TLS,
    TIMEOUT_DEFAULT,
    AuthorizationOptions,
    read_authorization,
)
from natsd.config.jetstream_options import JetStreamOptions, read_jetstream
from natsd.config.settings import (
    NamedSections,
    OptionsError,
    Settings,
    duration,
    file,
    flag,
    optional,
    raise_together,
    read_named_texts,
    secret,
    section,
    section_field,
    settings_of,
    size,
    text,
    texts,
    unknown_setting,
    whole,
    word,
)
from natsd.config.top_level import (
    read_accounts,
    read_cluster,
    read_gateway,
    read_leafnodes,
    read_mappings,
    read_mqtt,
    read_ocsp,
    read_ocsp_cache,
    read_operators,
    read_preload,
    read_proxies,
    read_public_keys,
    read_resolver,
    read_switches,
    read_tls,
    read_websocket,
    read_words,
)
from natsd.core.durations import format_duration
from natsd.version import FEATURE_FLAGS

if TYPE_CHECKING:
    from natsd.config.account_options import AccountOptions
    from natsd.config.cluster_options import ClusterOptions
    from natsd.config.later_options import (
        GatewayOptions,
        MqttOptions,
        OcspCacheOptions,
        OcspOptions,
        WebsocketOptions,
    )
    from natsd.config.leafnode_options import LeafnodesOptions
    from natsd.config.mapping_options import MappingDestination
    from natsd.config.proxies_options import ProxiesOptions
    from natsd.config.resolver_options import ResolverOptions
    from natsd.config.tls_options import TlsOptions

KIB: Final = 1024
MIB: Final = 1024 * KIB
INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

RANDOM_PORT: Final = -1
PORT_MAX: Final = 65535
PAYLOAD_WARN_BYTES: Final = 8 * MIB


_OF_JETSTREAM: Final = "jetstream."
LOGIN: Final = {
    "user": "user",
    "password": "password",
    "token": "token",
    "auth_timeout": "timeout",
}
"""Settings of `authorization` that `make_options` takes by themselves, with their names there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Settings):
    """The server's settings. Durations are `timedelta`; seconds or `"2m"` are accepted."""

    # Client listener.
    host: str = text("0.0.0.0", "address to listen on for clients")
    port: int = whole(
        4222,
        RANDOM_PORT,
        PORT_MAX,
        "port to listen on for clients; -1 lets the system pick one",
        zero_is_default=True,
    )
    server_name: str = text("", "name of this server, without spaces; empty: its id")
    client_advertise: str = text("", "host or host:port that clients are told to connect to")

    # Logging.
    debug: bool = flag(False, "log debugging lines")
    trace: bool = flag(False, "log every protocol line")
    trace_verbose: bool = flag(False, "trace the system account too; implies trace")
    trace_headers: bool = flag(
        False, "trace only the headers of messages, not their payloads; implies trace"
    )
    logtime: bool = flag(True, "start each log line with the time")
    logtime_utc: bool = flag(False, "log times in UTC, not in the local zone")
    log_file: Path | None = file("file to log to; none: standard error")
    log_size_limit: int = whole(
        0, 0, INT64_MAX, "bytes after which the log file is rotated; 0: never"
    )
    logfile_max_num: int = whole(
        0, 0, INT32_MAX, "log files kept, the current one included; 0: all"
    )
    syslog: bool = flag(False, "log to the syslog service of this machine, without log_file")
    remote_syslog: str = text(
        "", "log to this syslog service, without log_file: udp://, tcp:// or unix://"
    )
    prof_port: int = whole(0, RANDOM_PORT, PORT_MAX, "port of /debug/pprof/; 0: none")
    prof_block_rate: int = whole(0, INT32_MIN, INT32_MAX, "has no effect: for Go's profiler")
    max_traced_msg_len: int = whole(
        0, -1, INT32_MAX, "bytes shown of a traced message; 0 or -1: all"
    )

    # Files for supervisors.
    pid_file: Path | None = file("file that holds the process id while the server runs")
    ports_file_dir: Path | None = file("directory for <program>_<pid>.ports, in JSON")

    # Monitoring.
    http_host: str = text("", "address of the monitoring endpoints; empty: that of the clients")
    http_port: int = whole(
        0,
        RANDOM_PORT,
        PORT_MAX,
        "port of the monitoring endpoints; -1: the system picks, 0: none",
    )
    http_base_path: str = text("", "path under which the monitoring endpoints stand")
    https_port: int = whole(
        0,
        RANDOM_PORT,
        PORT_MAX,
        "port of the monitoring endpoints by HTTPS, with the certificate of `tls`; 0: none",
    )
    http_user: str = text("", "user that may read the monitoring endpoints; empty: everybody")
    http_password: str = secret("password of that user, in plain or as bcrypt hash")

    # Limits.
    max_control_line: int = whole(
        4096, 1, INT32_MAX, "bytes in a protocol line", zero_is_default=True
    )
    max_payload: int = whole(
        MIB, 1, INT32_MAX, "bytes in a message, headers included", zero_is_default=True
    )
    max_pending: int = whole(
        64 * MIB,
        1,
        INT64_MAX,
        "bytes that may wait for a slow subscriber",
        zero_is_default=True,
    )
    max_pending_total: int = size(
        0,
        0,
        "memory that the pending bytes of all connections may take; 0: an eighth of what there is",
    )
    max_connections: int = whole(64 * KIB, -1, INT32_MAX, "client connections; 0 or -1: refuse all")
    max_subscriptions: int = whole(
        0, -1, INT32_MAX, "subscriptions per connection; 0 or -1: no limit"
    )
    max_sub_tokens: int = whole(0, 0, 255, "tokens in a subscription's subject; 0: no limit")
    max_closed_clients: int = whole(
        10_000, 1, INT32_MAX, "closed connections remembered", zero_is_default=True
    )

    # Timeouts of connections.
    ping_interval: timedelta = duration(timedelta(minutes=2), "how often a silent client is pinged")
    ping_max: int = whole(
        2,
        1,
        INT32_MAX,
        "unanswered pings until a connection is stale",
        zero_is_default=True,
    )
    write_deadline: timedelta = duration(timedelta(seconds=10), "how long a write may be blocked")
    write_timeout: str = word(
        "default",
        {"default": "default", "close": "close", "retry": "retry"},
        "what happens after the write deadline: the client is closed; "
        "retry: not if it took a part of what was sent",
    )

    # Moving clients to other servers (SIGUSR2).
    lame_duck_duration: timedelta = duration(
        timedelta(minutes=2),
        "how long a lame duck takes to close all its clients; in a file at least 30s",
    )
    lame_duck_grace_period: timedelta = duration(
        timedelta(seconds=10), "how long a lame duck waits before it closes the first client"
    )

    # Who may log in, and to which account.
    authorization: AuthorizationOptions = section(
        AuthorizationOptions(), read_authorization, "how clients log in"
    )
    accounts: "NamedSections[AccountOptions]" = section_field(
        NamedSections["AccountOptions"](), read_accounts, "settings of accounts by name"
    )
    mappings: "Mapping[str, tuple[MappingDestination, ...]]" = section_field(
        NamedSections["tuple[MappingDestination, ...]"](),
        read_mappings,
        "other subjects that messages published in $G get",
    )
    no_auth_user: str = text("", "user that clients without credentials are")
    system_account: str = text("", "account of the server's own messages; empty: $SYS")
    no_system_account: bool = flag(False, "have no system account")
    proxies: "ProxiesOptions | None" = optional(read_proxies, "proxies whose signatures count")

    # Accounts and users with JWTs.
    operators: tuple[str, ...] = section_field(
        (), read_operators, "JWTs of operators, or files that hold them"
    )
    trusted_keys: tuple[str, ...] = section_field(
        (), read_public_keys, "public keys of operators, in place of their JWTs"
    )
    resolver: "ResolverOptions | None" = optional(read_resolver, "where accounts' JWTs come from")
    resolver_tls: "TlsOptions | None" = optional(read_tls, "TLS to the resolver's URL")
    resolver_preload: Mapping[str, str] = section_field(
        NamedSections[str](), read_preload, "accounts' JWTs by public key"
    )
    resolver_pinned_accounts: tuple[str, ...] = texts("accounts that need not be in the resolver")
    default_sentinel: str = secret("user JWT of clients without credentials")
    default_js_domain: Mapping[str, str] = section_field(
        NamedSections[str](), read_named_texts, "JetStream domains by account"
    )

    # TLS and proxies.
    tls: "TlsOptions | None" = optional(read_tls, "TLS for clients")
    allow_non_tls: bool = flag(False, "accept clients without TLS too")
    proxy_protocol: bool = flag(False, "accept only connections with a PROXY header")

    # What monitoring and events tell about this server.
    server_tags: tuple[str, ...] = section_field((), read_words, "tags of this server")
    server_metadata: Mapping[str, str] = section_field(
        NamedSections[str](), read_named_texts, "texts about this server, by name"
    )
    feature_flags: Mapping[str, bool] = section_field(
        NamedSections[bool](), read_switches, "experimental features, by name"
    )

    # Other servers.
    cluster: "ClusterOptions | None" = optional(read_cluster, "routes to other servers")
    connect_error_reports: int = whole(
        3600,
        0,
        INT32_MAX,
        "attempts to connect to another server of which one is logged",
        zero_is_default=True,
    )
    reconnect_error_reports: int = whole(
        1,
        0,
        INT32_MAX,
        "attempts to connect again to another server of which one is logged",
        zero_is_default=True,
    )

    # Features that do not exist yet.
    gateway: "GatewayOptions | None" = optional(read_gateway, "connections to other clusters")
    leafnodes: "LeafnodesOptions | None" = optional(read_leafnodes, "leaf nodes")
    websocket: "WebsocketOptions | None" = optional(read_websocket, "clients by WebSocket")
    mqtt: "MqttOptions | None" = optional(read_mqtt, "clients that speak MQTT")
    ocsp: "OcspOptions | None" = optional(read_ocsp, "stapling of OCSP responses")
    ocsp_cache: "OcspCacheOptions | None" = optional(
        read_ocsp_cache, "cache of OCSP responses about clients"
    )

    # JetStream.
    jetstream: JetStreamOptions = section(
        JetStreamOptions(), read_jetstream, "streams and consumers: true, or a mapping of settings"
    )
    store_dir: Path | None = file("directory in which JetStream keeps its data, in jetstream/")

    # Switches that disable features.
    no_header_support: bool = flag(False, "refuse message headers")
    disable_sublist_cache: bool = flag(False, "match every message anew")
    no_fast_producer_stall: bool = flag(False, "never slow down publishers to slow subscribers")

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        if self.trace_verbose or self.trace_headers:
            object.__setattr__(self, "trace", True)
        _check_together(self)
        _check_features(self)
        login = self.authorization
        if self.accounts or self.no_auth_user or login.users or login.auth_callout:
            from natsd.config.user_checks import check_users

            check_users(self)

    @property
    def login_timeout(self) -> timedelta:
        """How long a client may take to log in, after its TLS handshake if there is one.

        With TLS the default is a second more than a handshake may take, as in nats-server.
        """
        timeout = self.authorization.timeout
        if self.tls is not None and timeout == TIMEOUT_DEFAULT:
            return self.tls.timeout + AFTER_TLS
        return timeout

    @property
    def shares(self) -> bool:
        """Whether messages pass between accounts, or get other subjects."""
        return bool(
            self.mappings
            or self.default_js_domain
            or any(each.shares for each in self.accounts.values())
        )

    @property
    def auth_required(self) -> bool:
        """Whether clients must authenticate."""
        return bool(
            self.authorization.is_required
            or self.operators
            or self.trusted_keys
            or any(account.users for account in self.accounts.values())
        )

    @property
    def user_names(self) -> set[str]:
        """Names and public keys of the users of all accounts."""
        users = [*self.authorization.users]
        for account in self.accounts.values():
            users += account.users
        return {user.nkey or user.user for user in users} | {self.authorization.user}

    @property
    def has_own_accounts(self) -> bool:
        """Whether there are other accounts than the default one and the system account."""
        system = self.system_account or SYSTEM
        return bool(self.operators or self.trusted_keys or self.accounts.keys() - {GLOBAL, system})

    @property
    def has_cluster(self) -> bool:
        """Whether the server accepts routes of other servers, and connects to them."""
        return self.cluster is not None and self.cluster.is_on

    @property
    def http_address(self) -> str:
        """Host on which the monitoring endpoints listen."""
        return self.http_host or self.host

    @property
    def http_scheme(self) -> str:
        """Scheme of the monitoring endpoints' URLs."""
        return "https" if self.https_port else "http"


def make_options(base: Options | None = None, /, **settings: Any) -> Options:
    """Return the options of `base` (None: the defaults) with settings changed by name.

    A name such as `jetstream.max_file_store` changes one setting of the section and keeps the
    others. Raises OptionsError for an unknown name or an invalid value.
    """
    _fold_jetstream(settings, JetStreamOptions() if base is None else base.jetstream)
    _fold_login(settings, AuthorizationOptions() if base is None else base.authorization)
    known = [setting.name for setting in fields(Options)]
    for name in settings:
        if name not in known:
            raise unknown_setting(name, known)
    if base is None:
        return Options(**settings)
    if isinstance(settings.get("jetstream"), bool):  # a boolean keeps the section's other settings
        settings["jetstream"] = replace(base.jetstream, enabled=settings["jetstream"])
    if settings.get("store_dir") and base.jetstream.store_dir:
        settings.setdefault("jetstream", base.jetstream)
        settings["jetstream"] = replace(settings["jetstream"], store_dir=None)
    return replace(base, **settings)


def _fold_jetstream(settings: dict[str, Any], base: JetStreamOptions) -> None:
    """Replace settings named `jetstream.<name>` by a `jetstream` section that contains them."""
    names = [name for name in settings if name.startswith(_OF_JETSTREAM)]
    if not names:
        return
    given = {name.removeprefix(_OF_JETSTREAM): settings.pop(name) for name in names}
    known = [setting.name for setting in fields(JetStreamOptions)]
    for name in given:
        if name not in known:
            raise unknown_setting(name, known)
    section = settings.get("jetstream", base)
    if isinstance(section, bool):
        section = replace(base, enabled=section)
    elif not isinstance(section, JetStreamOptions):
        section = read_jetstream(section)
    settings["jetstream"] = replace(section, **given)


def _fold_login(settings: dict[str, Any], base: AuthorizationOptions) -> None:
    """Replace `user`, `password`, `token` and `auth_timeout` by an `authorization` section."""
    given = {LOGIN[name]: settings.pop(name) for name in LOGIN if name in settings}
    if not given:
        return
    section = settings.get("authorization", base)
    if not isinstance(section, AuthorizationOptions):
        section = read_authorization(section)
    settings["authorization"] = replace(section, **given)


BLOCKS: Final = {
    "gateway": "gateways",
    "leafnodes": "leaf nodes",
    "websocket": "WebSocket",
    "mqtt": "MQTT",
    "ocsp": "OCSP stapling",
    "ocsp_cache": "a cache of OCSP responses",
}


def _check_features(options: Options) -> None:
    """Refuse settings that would switch on what does not exist yet. Raises OptionsError."""
    blocks = {name: getattr(options, name) for name in BLOCKS}
    raise_together(
        [
            OptionsError(f"{name}: natsd does not support {BLOCKS[name]} yet", setting=name)
            for name, block in blocks.items()
            if block is not None and block.is_on
        ]
    )
    for name, is_on in options.feature_flags.items():
        if is_on and name in FEATURE_FLAGS and not FEATURE_FLAGS[name]:
            raise OptionsError(
                f"feature_flags: natsd does not support {name} yet", path=("feature_flags", name)
            )


def _check_monitoring(options: Options) -> None:
    """Check the settings of the monitoring port. Raises OptionsError."""
    if options.http_port and options.https_port:
        raise OptionsError(
            f"can't specify both HTTP ({options.http_port}) and HTTPs ({options.https_port}) ports",
            setting="https_port",
        )
    if options.https_port and options.tls is None:
        raise OptionsError("TLS cert and key required for HTTPS", setting="https_port")
    if bool(options.http_user) != bool(options.http_password):
        raise OptionsError(
            "http_user and http_password need each other",
            setting="http_user" if options.http_user else "http_password",
        )


def _check_together(options: Options) -> None:
    """Check settings that depend on each other. Raises OptionsError."""
    if options.max_payload > options.max_pending:
        raise OptionsError(
            f"max_payload ({options.max_payload}) cannot be higher than "
            f"max_pending ({options.max_pending})",
            setting=_changed(options, "max_payload", "max_pending"),
        )
    if 0 < options.max_pending_total < options.max_pending:
        raise OptionsError(
            f"max_pending ({options.max_pending}) cannot be higher than "
            f"max_pending_total ({options.max_pending_total})",
            setting=_changed(options, "max_pending_total", "max_pending"),
        )
    if options.lame_duck_grace_period >= options.lame_duck_duration:
        raise OptionsError(
            f"lame duck grace period ({format_duration(options.lame_duck_grace_period)}) should be "
            "strictly lower than lame duck duration "
            f"({format_duration(options.lame_duck_duration)})",
            setting=_changed(options, "lame_duck_duration", "lame_duck_grace_period"),
        )
    _check_monitoring(options)
    if options.store_dir and options.jetstream.store_dir:
        raise OptionsError(
            "store_dir is given twice: by itself and in jetstream", setting="store_dir"
        )
    if options.remote_syslog:
        from natsd.config.syslog_address import read_syslog_address

        read_syslog_address(options.remote_syslog)
    if " " in options.server_name:
        raise OptionsError("server name cannot contain spaces", setting="server_name")
    if options.default_sentinel and not options.operators:
        raise OptionsError(
            "default sentinel requires operators and accounts", setting="default_sentinel"
        )
    if options.default_js_domain:
        from natsd.config.default_domains import check_default_domains

        check_default_domains(
            options.default_js_domain,
            options.accounts,
            options.system_account,
            is_operated=bool(options.operators or options.trusted_keys),
        )


def _changed(options: Options, *names: str) -> str:
    """Return the first of the settings that is not the default; the first one if all are."""
    kinds = settings_of(Options)
    return next((name for name in names if getattr(options, name) != kinds[name].default), names[0])
