"""The settings of `cluster {}`: routes between the servers of a cluster.

- A block without a port is accepted and has no effect, as in nats-server.
- Times that are not set are those of clients; a silent route is pinged after 30 s at the latest.
- With a pool of connections the system account has a connection of its own.

Source: nats-server's `parseCluster` and `setBaselineOptions` (server/opts.go), `validateCluster`
(server/server.go).
"""
# ruff: noqa: RUF009  each call declares a setting; nothing is shared between instances

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from natsd.config.auth_options import PERMISSIONS_ALIASES, PermissionsOptions, read_permissions
from natsd.config.authorization import AFTER_TLS, TIMEOUT_DEFAULT, AuthorizationOptions
from natsd.config.listener_options import (
    CompressionOptions,
    ServerListener,
    check_login,
    check_name,
    compression,
    read_listener,
    server_login,
    urls,
)
from natsd.config.settings import (
    OptionsError,
    duration,
    flag,
    in_words,
    locate,
    optional,
    text,
    texts,
    whole,
)
from natsd.config.tls_options import TlsOptions, read_server_tls
from natsd.core.routing import is_valid

INT32_MAX: Final = 2**31 - 1
POOL_SIZE_DEFAULT: Final = 3
PING_INTERVAL_MAX: Final = timedelta(seconds=30)
ALIASES: Final = {"cluster_advertise": "advertise"}
_ADVERTISE: Final = re.compile(r"([^:]*|\[.*\])(:[+-]?\d+)?")


def _has_port(url: str) -> bool:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port is not None
    except ValueError:
        return False


def _read_tls(given: object) -> TlsOptions:
    """Return the section; servers always check each other's certificates."""
    return replace(read_server_tls(given), verify=True)


def _read_permissions(given: object) -> PermissionsOptions:
    found = read_permissions(given)
    error = _mistake_of_permissions(found)
    if error is not None:
        locate(error, given, PERMISSIONS_ALIASES)
        raise error
    return found


def _mistake_of_permissions(given: PermissionsOptions) -> OptionsError | None:
    """Return what routes cannot use: responses, and queues of subscriptions."""
    if given.allow_responses is not None:
        reason = "Cluster permissions do not support dynamic responses"
        return OptionsError(reason, setting="allow_responses")
    rules = given.subscribe
    for kind, subjects in (("allow", rules.allow or ()), ("deny", rules.deny)):
        for subject in subjects:
            if not is_valid(subject):
                reason = f'cluster export {kind}: subject "{subject}" is not a valid subject'
                return OptionsError(reason, setting="subscribe")
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions(ServerListener):
    """Routes to the other servers of the cluster."""

    name: str = text("", "name of the cluster, without spaces; empty: the servers choose one")
    tls: TlsOptions | None = optional(_read_tls, "TLS of these connections")
    authorization: AuthorizationOptions = server_login()
    permissions: PermissionsOptions | None = optional(
        _read_permissions, "subjects that pass: import, export"
    )
    routes: tuple[str, ...] = urls()
    no_advertise: bool = flag(False, "do not tell clients about the other servers")
    connect_retries: int = whole(0, 0, INT32_MAX, "attempts to connect to an implicit route")
    connect_backoff: bool = flag(False, "wait longer after each attempt")
    pool_size: int = whole(
        POOL_SIZE_DEFAULT,
        -1,
        INT32_MAX,
        "connections to each server; -1: one, and none for single accounts",
        zero_is_default=True,
    )
    accounts: tuple[str, ...] = texts("accounts with a connection of their own")
    compression: CompressionOptions = compression()
    ping_interval: timedelta = duration(
        timedelta(0), "how often a peer is pinged; not given: as clients, at most 30s"
    )
    ping_max: int = whole(
        0, 0, INT32_MAX, "unanswered pings until a connection is stale; 0: as for clients"
    )
    write_deadline: timedelta = duration(
        timedelta(0), "how long a write may be blocked; not given: as for clients"
    )

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        check_name("cluster", self.name)
        check_login("Cluster", self.authorization)
        if self.accounts and self.pool_size < 0:
            raise OptionsError(
                "pool_size cannot be negative if pinned accounts are specified", setting="pool_size"
            )
        for index, name in enumerate(self.accounts):
            if name in self.accounts[:index]:
                raise OptionsError(
                    f"found duplicate account name {in_words(name)} in pinned accounts list",
                    path=("accounts", index),
                )
        for index, url in enumerate(self.routes):
            if not _has_port(url):
                raise OptionsError(
                    "the URL of a route must have a host and a port", path=("routes", index)
                )
        if self.advertise and _ADVERTISE.fullmatch(self.advertise) is None:
            raise OptionsError(
                f"cluster_advertise must be host or host:port, not {in_words(self.advertise)}",
                setting="advertise",
            )

    @property
    def is_on(self) -> bool:
        """Whether the server listens for other servers, and connects to them."""
        return self.port != 0

    @property
    def rules(self) -> PermissionsOptions | None:
        """Subjects that pass; None: all. `authorization` may have them in place of the block."""
        return self.permissions or self.authorization.default_permissions

    @property
    def login_timeout(self) -> timedelta:
        """How long another server may take to log in, after its TLS handshake."""
        timeout = self.authorization.timeout
        if self.tls is not None and timeout == TIMEOUT_DEFAULT:
            return self.tls.timeout + AFTER_TLS
        return timeout


def read_cluster(given: object) -> ClusterOptions:
    """Return the settings of routes from a mapping. Raises OptionsError."""
    return read_listener(ClusterOptions, given, ALIASES)
