"""The settings of leaf nodes, which do not exist yet: they are checked, and refused if switched on.

Source: nats-server's `parseLeafNodes`, `parseLeafAuthorization`, `parseRemoteLeafNodes`
(server/opts.go), `validateLeafNode` (server/leafnode.go).
"""
# ruff: noqa: RUF009  each call declares a setting; nothing is shared between instances

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from natsd.config.account_names import GLOBAL
from natsd.config.authorization import TIMEOUT_DEFAULT
from natsd.config.listener_options import (
    CompressionOptions,
    ServerListener,
    compression,
    read_listener,
    urls,
)
from natsd.config.public_keys import Kind, is_public, is_user_seed
from natsd.config.sections import section_of
from natsd.config.settings import (
    OptionsError,
    Settings,
    duration,
    flag,
    locate,
    optional,
    read_items,
    read_texts,
    secret,
    section_field,
    text,
)
from natsd.config.tls_options import TlsOptions, read_tls
from natsd.core.quoting import quoted
from natsd.core.routing import is_valid

_SECOND: Final = timedelta(seconds=1)
_VERSION: Final = re.compile(r"v?(\d+)\.?(\d+)\.?(\d+).*")
LEAST_VERSION: Final = (2, 8, 0)
LOGIN_ALIASES: Final = {"username": "user", "pass": "password"}
ALIASES: Final = {
    "leafnode_advertise": "advertise",
    "minimum_version": "min_version",
    "isolate": "isolate_leafnode_interest",
    "reconnect_delay": "reconnect",
    "reconnect_interval": "reconnect",
}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafUser(Settings):
    """A user as which leaf nodes log in."""

    user: str = text("", "name of the user")
    password: str = secret("password of the user")
    account: str = text("", "account of the leaf node; empty: the default one")
    proxy_required: bool = flag(False, "accept only connections through a trusted proxy")


_read_user = partial(section_of, LeafUser, aliases=LOGIN_ALIASES)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafLogin(LeafUser):
    """How leaf nodes log in: as one user, with an nkey, or as one of several users."""

    nkey: str = text("", "public nkey of the user")
    timeout: timedelta = duration(TIMEOUT_DEFAULT, "how long a leaf node may take to log in")
    users: tuple[LeafUser, ...] = section_field(
        (), partial(read_items, read_one=_read_user, what="users"), "users that may log in"
    )

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        if self.nkey and not is_public(self.nkey, Kind.USER):
            raise OptionsError("Not a valid public nkey for leafnode authorization", setting="nkey")
        for name, what in {"user": "user/pass", "nkey": "nkey"}.items():
            if self.users and getattr(self, name):
                raise OptionsError(
                    f"can not have a single {what} and a users array", setting="users"
                )
        names = [each.user for each in self.users]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise OptionsError(
                    f'duplicate user "{name}" detected in leafnode authorization',
                    path=("users", index),
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafProxy(Settings):
    """The HTTP proxy through which a WebSocket to another server goes."""

    url: str = text("", "address of the proxy, http or https")
    username: str = text("", "name that the proxy wants")
    password: str = secret("password that the proxy wants")
    timeout: timedelta = duration(timedelta(0), "how long connecting may take")

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        if not self.url:
            return
        try:
            url = urlsplit(self.url)
        except ValueError as error:
            raise OptionsError(f"invalid proxy URL: {error}", setting="url") from None
        if url.scheme not in ("http", "https"):
            raise OptionsError(
                f"proxy URL scheme must be http or https, got: {url.scheme}", setting="url"
            )
        if not url.netloc:
            raise OptionsError("proxy URL must specify a host", setting="url")
        if bool(self.username) != bool(self.password):
            raise OptionsError(
                "proxy username and password must both be specified or both be empty"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateOptions(Settings):
    """How leaders step down when the connection to the other server is lost."""

    leader_migrate_delay: timedelta = duration(timedelta(0), "how long a leader waits before it")


def _read_migrate(given: object) -> MigrateOptions | None:
    if isinstance(given, bool):
        return MigrateOptions() if given else None
    if not isinstance(given, Mapping | MigrateOptions):
        raise OptionsError("Expected boolean or map")
    return section_of(MigrateOptions, given)


def _read_subjects(given: object) -> tuple[str, ...]:
    subjects = read_texts(given)
    for subject in subjects:
        if not is_valid(subject):
            raise OptionsError(f'subject "{subject}" is not a valid subject')
    return subjects


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafRemote(Settings):
    """A server that this one connects to as a leaf node."""

    url: tuple[str, ...] = urls()
    account: str = text("", "local account")
    credentials: str = text("", "file with a user JWT and its seed")
    nkey: str = secret("seed of an nkey")
    tls: TlsOptions | None = optional(read_tls, "TLS of these connections")
    hub: bool = flag(False, "the other side is the leaf node")
    deny_imports: tuple[str, ...] = section_field((), _read_subjects, "what does not come in")
    deny_exports: tuple[str, ...] = section_field((), _read_subjects, "what does not go out")
    no_randomize: bool = flag(False, "try the addresses in their order")
    ws_compression: bool = flag(False, "compress the WebSocket")
    ws_no_masking: bool = flag(False, "do not mask frames of the WebSocket")
    jetstream_cluster_migrate: MigrateOptions | None = optional(
        _read_migrate, "step down as leader when the connection is lost"
    )
    isolate_leafnode_interest: bool = flag(False, "do not pass on interest of other leaf nodes")
    request_isolation: bool = flag(False, "ask the other side not to pass on interest")
    compression: CompressionOptions = compression()
    first_info_timeout: timedelta = duration(_SECOND, "how long the first INFO may take")
    dial_timeout: timedelta = duration(_SECOND, "how long connecting may take")
    disabled: bool = flag(False, "do not connect")
    ignore_discovered_servers: bool = flag(False, "use only configured addresses")
    proxy: LeafProxy = section_field(LeafProxy(), partial(section_of, LeafProxy), "HTTP proxy")

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        if self.nkey and not is_user_seed(self.nkey):
            raise OptionsError("Remote leafnode nkey is not a valid seed", setting="nkey")
        if self.nkey and self.credentials:
            raise OptionsError(
                "Remote leafnode can not have both creds and nkey defined", setting="nkey"
            )
        schemes = [urlsplit(each).scheme for each in self.url]
        if len({scheme in ("ws", "wss") for scheme in schemes}) > 1:
            raise OptionsError(
                "remote leaf node configuration cannot have a mix of websocket and non-websocket "
                "urls",
                setting="url",
            )
        if self.proxy.url and "wss" in schemes and self.tls is None:
            raise OptionsError(
                "proxy is configured but a remote URL requires TLS and no TLS configuration is "
                "provided",
                setting="proxy",
            )


def _read_remotes(given: object) -> tuple[LeafRemote, ...]:
    read_one = partial(section_of, LeafRemote, aliases=REMOTE_ALIASES)
    found = read_items(given, read_one, "remotes")
    names = [(each.url, each.account or GLOBAL, each.credentials or each.nkey) for each in found]
    for index, name in enumerate(names):
        if name in names[:index]:
            error = OptionsError(f"duplicate remote of account {quoted(name[1])}", path=(index,))
            locate(error, given)
            raise error
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafnodesOptions(ServerListener):
    """Leaf nodes, in both directions."""

    authorization: LeafLogin = section_field(
        LeafLogin(), partial(section_of, LeafLogin, aliases=LOGIN_ALIASES), "logins"
    )
    no_advertise: bool = flag(False, "do not tell leaf nodes about the other servers")
    min_version: str = text("", "lowest version of leaf nodes")
    compression: CompressionOptions = compression()
    isolate_leafnode_interest: bool = flag(False, "do not pass on interest of other leaf nodes")
    reconnect: timedelta = duration(_SECOND, "pause before connecting again")
    dial_timeout: timedelta = duration(_SECOND, "how long connecting may take")
    remotes: tuple[LeafRemote, ...] = section_field((), _read_remotes, "servers to connect to")

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        if not self.min_version:
            return
        version = _VERSION.fullmatch(self.min_version)
        if version is None:
            reason = f"invalid leafnode's minimum version: invalid semver {self.min_version!r}"
        elif tuple(map(int, version.groups())) < LEAST_VERSION:
            reason = "the minimum version should be at least 2.8.0"
        else:
            return
        raise OptionsError(reason, setting="min_version")

    @property
    def is_on(self) -> bool:
        """Whether the server would accept leaf nodes or be one."""
        return self.port != 0 or bool(self.remotes)


def read_leafnodes(given: object) -> LeafnodesOptions:
    """Return the settings of leaf nodes from a mapping. Raises OptionsError."""
    return read_listener(LeafnodesOptions, given, ALIASES)
