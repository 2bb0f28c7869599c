"""Changes of settings while the server runs: what differs, and what applies each difference.

    diff_options(old, new) ─▶ [OptionChange("max_payload", 1048576, 2048, (CONNECTIONS, INFO)), …]
    with_changes(old, changes) == new

- `APPLIED_BY` names every setting of `Options`, once. A setting of JetStream is `jetstream.<name>`.
- A setting with no component needs a restart. JetStream's settings can be changed while it is off,
  or with the change that switches it on or off.
- What nats-server can change, or accepts without effect, can be changed here too. More than there
  can be changed: `max_pending`, `max_pending_total`, `max_subscriptions`, `max_sub_tokens`,
  `max_closed_clients`, `no_auth_user`, `auth_callout`, `proxy_required`, `allow_non_tls`,
  `proxy_protocol`, the sizes of the log and the times of lame duck mode.
- The log shows a change in the words of nats-server (`LINES`), and no secret.

Source: nats-server's `diffOptions` (server/reload.go).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from enum import Enum
from typing import Any, Final

from natsd.config.account_names import SYSTEM
from natsd.config.options import Options
from natsd.config.secret_texts import REDACTED, without_secrets
from natsd.core.durations import format_duration
from natsd.core.sizes import friendly_bytes

CONTROL_LINE_BYTES_MAX: Final = 64 << 10
"""Every server's read buffer is large enough for protocol lines of this length."""
SECTIONS: Final = ("authorization", "jetstream")
"""Sections whose settings change one by one."""


class Component(Enum):
    """What applies a change."""

    LOG = "the daemon's log"
    FILES = "the pid file and the ports file"
    CONNECTIONS = "the limits and times that all connections share"
    CLIENTS = "the open connections, one by one"
    CLOSED_CLIENTS = "the closed connections that monitoring shows"
    ACCOUNTS = "the accounts: their limits, their streams, what they share"
    LOGIN = "the login, which clients with other credentials have lost"
    INFO = "the INFO line, which clients are sent again"
    JETSTREAM = "the JetStream engine"
    RESOLVER = "the resolver of accounts' JWTs, after the other components"
    CLUSTER = "the routes to other servers"
    TLS = "what comes before the protocol of new connections: PROXY headers and TLS"
    NEXT_USE = "the next reader of the setting: nothing has to be told"


@dataclass(frozen=True, slots=True)
class OptionChange:
    """A changed setting, with its values and the components that apply it; none: a restart."""

    name: str
    old: Any
    new: Any
    applied_by: tuple[Component, ...]
    is_secret: bool = False
    is_section: bool = False

    @property
    def needs_restart(self) -> bool:
        """Whether only a restart applies the change."""
        return not self.applied_by

    @property
    def new_text(self) -> str:
        """What nats-server calls the change, or the name and the value; no secret or section."""
        if self.name in LINES:
            return LINES[self.name](self.new)
        if self.is_section:
            return self.name
        return f"{self.name} = {_shown(self.new, is_secret=self.is_secret)}"

    def __str__(self) -> str:
        if self.name in REFUSALS:
            return REFUSALS[self.name](self.old, self.new)
        if self.is_section:
            return self.name
        old = _shown(self.old, is_secret=self.is_secret)
        return f"{self.name}: old={old}, new={_shown(self.new, is_secret=self.is_secret)}"


@dataclass(frozen=True, slots=True)
class AppliedBy:
    """The components that apply a setting, if `can_apply(old, new)`."""

    components: tuple[Component, ...]
    can_apply: Callable[[Any, Any], bool] = lambda _old, _new: True


def _by(*components: Component) -> AppliedBy:
    return AppliedBy(components)


def _is_larger(old: int, new: int) -> bool:
    """Return whether a size grows that was configured and is configured (-1: it was not)."""
    return 0 <= old < new


def _fits_read_buffer(old: int, new: int) -> bool:
    return new <= max(old, CONTROL_LINE_BYTES_MAX)


def _block(*names: str) -> AppliedBy:
    """Return the row of a block that is off and may change in these settings alone.

    None stands for the defaults.
    """

    def can_apply(old: Any, new: Any) -> bool:
        default = type(new if old is None else old)()
        before, after = old or default, new or default
        kept = [each.name for each in fields(default) if each.name not in names]
        return all(getattr(before, name) == getattr(after, name) for name in kept)

    return AppliedBy((Component.NEXT_USE,), can_apply)


def _has_same_port(old: Any, new: Any) -> bool:
    """Return whether the routes of both settings are accepted on the same port, or on none."""
    return _cluster_port(old) == _cluster_port(new)


def _cluster_port(cluster: Any) -> tuple[str, int]:
    return ("", 0) if cluster is None else (cluster.host, cluster.port)


def _cluster_refusal(old: Any, new: Any) -> str:
    """Return what nats-server says of another address for routes."""
    before, after = _cluster_port(old), _cluster_port(new)
    if before[0] != after[0]:
        return f"cluster host: old={before[0]}, new={after[0]}"
    return f"cluster port: old={before[1]}, new={after[1]}"


def _is_still_given(old: object, new: object) -> bool:
    return (old is None) == (new is None)


def _is_default_system(old: str, new: str) -> bool:
    """Return whether the system account was named by its default name and is not named now."""
    return old == SYSTEM and not new


RESTART: Final = _by()
_LOG: Final = _by(Component.LOG)
_NEXT_USE: Final = _by(Component.NEXT_USE)
_LOGIN: Final = _by(Component.LOGIN, Component.INFO)
_CONNECTIONS: Final = _by(Component.CONNECTIONS)
_LARGER: Final = AppliedBy((Component.JETSTREAM,), _is_larger)

APPLIED_BY: Final[dict[str, AppliedBy]] = {
    "host": RESTART,
    "port": RESTART,
    "server_name": RESTART,
    "client_advertise": _by(Component.INFO),
    "debug": _LOG,
    "trace": _by(Component.LOG, Component.CLIENTS),
    "trace_verbose": _by(Component.LOG, Component.CLIENTS),
    "logtime": _LOG,
    "logtime_utc": _LOG,
    "log_file": _LOG,
    "log_size_limit": _LOG,
    "logfile_max_num": _LOG,
    "max_traced_msg_len": _NEXT_USE,
    "pid_file": _by(Component.FILES),
    "ports_file_dir": _by(Component.FILES),
    "http_host": RESTART,
    "http_port": RESTART,
    "http_base_path": RESTART,
    "https_port": RESTART,
    "http_user": _by(Component.NEXT_USE),
    "http_password": _by(Component.NEXT_USE),
    "max_control_line": AppliedBy((Component.CONNECTIONS,), _fits_read_buffer),
    "max_payload": _by(Component.CONNECTIONS, Component.INFO),
    "max_pending": _CONNECTIONS,
    "max_pending_total": _CONNECTIONS,
    "max_connections": _by(Component.CLIENTS),
    "max_subscriptions": _CONNECTIONS,
    "max_sub_tokens": _CONNECTIONS,
    "max_closed_clients": _by(Component.CLOSED_CLIENTS),
    "ping_interval": _CONNECTIONS,
    "ping_max": _CONNECTIONS,
    "write_deadline": _CONNECTIONS,
    "lame_duck_duration": _NEXT_USE,
    "lame_duck_grace_period": _NEXT_USE,
    "authorization.user": _LOGIN,
    "authorization.password": _LOGIN,
    "authorization.token": _LOGIN,
    "authorization.timeout": _by(Component.CONNECTIONS, Component.LOGIN),
    "authorization.users": _LOGIN,
    "authorization.default_permissions": _LOGIN,
    "authorization.auth_callout": _LOGIN,
    "authorization.proxy_required": _LOGIN,
    "accounts": _by(Component.ACCOUNTS, Component.JETSTREAM, Component.LOGIN, Component.INFO),
    "mappings": _by(Component.ACCOUNTS),
    "no_auth_user": _LOGIN,
    "system_account": AppliedBy((Component.NEXT_USE,), _is_default_system),
    "no_system_account": RESTART,
    "proxies": _LOGIN,
    "operators": RESTART,
    "trusted_keys": RESTART,
    "resolver": AppliedBy((Component.RESOLVER,), _is_still_given),
    "resolver_tls": _by(Component.RESOLVER),
    "resolver_preload": _by(Component.RESOLVER),
    "resolver_pinned_accounts": _by(Component.RESOLVER, Component.LOGIN),
    "default_sentinel": _LOGIN,
    "default_js_domain": RESTART,
    "tls": _by(Component.TLS, Component.LOGIN, Component.INFO),
    "allow_non_tls": _by(Component.TLS, Component.INFO),
    "proxy_protocol": _by(Component.TLS),
    "server_tags": _NEXT_USE,
    "server_metadata": _NEXT_USE,
    "feature_flags": RESTART,
    "cluster": AppliedBy((Component.CLUSTER, Component.INFO), _has_same_port),
    "gateway": _block("tls"),
    "leafnodes": _block("compression", "remotes", "tls"),
    "websocket": _block("tls"),
    "mqtt": _block(
        "ack_wait",
        "max_ack_pending",
        "stream_replicas",
        "consumer_replicas",
        "consumer_memory_storage",
        "consumer_inactive_threshold",
        "tls",
    ),
    "ocsp": _NEXT_USE,
    "ocsp_cache": RESTART,
    "trace_headers": _by(Component.LOG, Component.CLIENTS),
    "syslog": _LOG,
    "remote_syslog": _LOG,
    "prof_port": RESTART,
    "prof_block_rate": _NEXT_USE,
    "write_timeout": RESTART,
    "connect_error_reports": _NEXT_USE,
    "reconnect_error_reports": _NEXT_USE,
    "jetstream.enabled": _by(Component.JETSTREAM, Component.INFO),
    "jetstream.store_dir": RESTART,
    "jetstream.max_memory_store": _LARGER,
    "jetstream.max_file_store": _LARGER,
    "jetstream.domain": RESTART,
    "jetstream.strict": RESTART,
    "jetstream.sync_interval": RESTART,
    "jetstream.scrub_interval": _by(Component.JETSTREAM),
    "jetstream.scrub_speed": _by(Component.JETSTREAM),
    "jetstream.key": RESTART,
    "jetstream.prev_key": RESTART,
    "jetstream.cipher": RESTART,
    "jetstream.unique_tag": RESTART,
    "jetstream.max_outstanding_catchup": RESTART,
    "jetstream.max_buffered_size": RESTART,
    "jetstream.max_buffered_msgs": RESTART,
    "jetstream.request_queue_limit": RESTART,
    "jetstream.info_queue_limit": RESTART,
    "jetstream.max_concurrent_io": RESTART,
    "jetstream.extension_hint": RESTART,
    "jetstream.meta_compact": _NEXT_USE,
    "jetstream.meta_compact_size": _NEXT_USE,
    "jetstream.meta_compact_sync": _NEXT_USE,
    "jetstream.tpm": RESTART,
    "jetstream.limits": RESTART,
    "store_dir": RESTART,
    "no_header_support": RESTART,
    "disable_sublist_cache": RESTART,
    "no_fast_producer_stall": _CONNECTIONS,
}

REFUSALS: Final[dict[str, Callable[[Any, Any], str]]] = {"cluster": _cluster_refusal}
"""What is said of a change that needs a restart, where that is not `<name>: old=…, new=…`."""

LINES: Final[dict[str, Callable[[Any], str]]] = {
    "authorization.user": lambda _: "authorization username",
    "authorization.password": lambda _: "authorization password",
    "authorization.token": lambda _: "authorization token",
    "authorization.timeout": lambda new: f"authorization timeout = {new.total_seconds():g}",
    "authorization.users": lambda _: "authorization users",
    "server_tags": lambda _: "tags",
    "server_metadata": lambda _: "metadata",
    "tls": lambda new: f"tls = {'disabled' if new is None else 'enabled'}",
    "ocsp": lambda _: "OCSP",
    "no_fast_producer_stall": lambda new: f"fast producers will {'not ' * new}be stalled",
    "jetstream.enabled": lambda _: "JetStream",
    "jetstream.max_memory_store": lambda new: f"JetStream max_mem_store = {friendly_bytes(new)}",
    "jetstream.max_file_store": lambda new: f"JetStream max_file_store = {friendly_bytes(new)}",
}
"""What nats-server logs of a changed setting where that is not `<name> = <value>`."""


def diff_options(old: Options, new: Options) -> list[OptionChange]:
    """Return the settings that differ, those of sections last."""
    changes = list(_diff(old, new, ""))
    for name in SECTIONS:
        changes.extend(_diff(getattr(old, name), getattr(new, name), f"{name}."))
    if old.jetstream.enabled and new.jetstream.enabled:
        return changes
    return [
        replace(change, applied_by=(Component.JETSTREAM,)) if _is_of_jetstream(change) else change
        for change in changes
    ]


def _is_of_jetstream(change: OptionChange) -> bool:
    """Return whether only a restart applies the change, unless JetStream is off before or after."""
    is_of_jetstream = change.name == "store_dir" or change.name.startswith("jetstream.")
    return is_of_jetstream and change.needs_restart


def with_changes(options: Options, changes: Iterable[OptionChange]) -> Options:
    """Return the options with all changes made. Raises OptionsError if they do not go together."""
    values: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    for change in changes:
        section, _, name = change.name.rpartition(".")
        (nested[section] if section else values)[name] = change.new
    sections = {name: replace(getattr(options, name), **nested[name]) for name in SECTIONS}
    return replace(options, **values, **sections)


def _diff(old: Any, new: object, prefix: str) -> Iterator[OptionChange]:
    """Yield the changes among the settings of one class, but not of a section within it."""
    for setting in fields(old):
        name = prefix + setting.name
        if name in SECTIONS:
            continue
        before, after = getattr(old, setting.name), getattr(new, setting.name)
        if before != after:
            row = APPLIED_BY[name]
            components = row.components if row.can_apply(before, after) else ()
            kind = setting.metadata["kind"]
            yield OptionChange(name, before, after, components, kind.is_secret, kind.is_section)


def _shown(value: object, *, is_secret: bool) -> str:
    if is_secret:
        return REDACTED
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return format_duration(value)
    return "" if value is None else without_secrets(str(value))
