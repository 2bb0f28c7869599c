"""A reload: the settings of a running server change, all that differ or none.

    new options ─▶ diff_options ─▶ refuse ─▶ prepare: log, files ─▶ apply: everything else
                                   (a restart is needed)  (may fail)     (cannot fail)

- A reload is done in steps, so that checking thousands of logins does not delay other clients. The
  new settings take effect in one step, for new connections too. Then the logins of the connected
  clients are checked: clients whose user is gone are closed in the same step, all others follow.
- `APPLIERS` has an entry for every component of natsd.config.changes that has to be told.
- What may fail is prepared first: the new log file is open and the new files are written. If a step
  fails, the steps before are undone, and nothing has changed.
- Each change is one log line, as in nats-server. A refusal is one line that names every setting
  that needs a restart, and where it stands in the file.

Source: nats-server's server/reload.go; the log lines and the text of a refusal are as there.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from natsd.clients import Client
from natsd.clients.closed import ClosedClient
from natsd.config import Options, OptionsError
from natsd.config.changes import Component, OptionChange, diff_options
from natsd.config.options import RANDOM_PORT
from natsd.config.resources import pending_bytes_max
from natsd.config.settings import Position
from natsd.core.network import Reactor, Settings
from natsd.core.steps import Steps, at_once, slices
from natsd.server.accounts_part import AccountsPart
from natsd.server.files import FileError
from natsd.server.limits import set_limits, sweep_seconds
from natsd.server.log import DaemonLog, LogError
from natsd.server.server_files import ServerFiles

if TYPE_CHECKING:
    from natsd.clients.openings import Openings
    from natsd.server.cluster_part import ClusterPart

_logger = logging.getLogger("natsd.server")

Commit = Callable[[], object]


class ReloadError(Exception):
    """The settings cannot be changed, and none is; the text is one line for the user."""


class ReloadableServer(Protocol):
    """The parts of a running server that apply changes."""

    options: Options
    client_port: int
    clients: dict[int, Client]
    accounts_part: AccountsPart
    cluster_part: "ClusterPart | None"
    settings: Settings
    reactor: Reactor
    closed_clients: deque[ClosedClient]
    log: DaemonLog | None
    files: ServerFiles

    @property
    def openings(self) -> "Openings | None":
        """What comes before the protocol of connections; None: nothing."""

    def prepare_openings(self, options: Options) -> Callable[[], None]:
        """Return what makes new connections open as the options say. Raises OptionsError."""

    def renew_info(self) -> None:
        """Render the INFO line again, and send it to the clients if it has changed."""

    def renew_jetstream(self) -> None:
        """Switch JetStream on or off, or raise its limits, as the options say."""


def reload(
    server: ReloadableServer,
    options: Options,
    places: Mapping[str, Position] = MappingProxyType({}),
) -> list[OptionChange]:
    """Apply the options and return the changes. Raises ReloadError; nothing has changed then.

    `places` says where settings stand in the configuration file. The bound port is the same as -1.
    """
    return at_once(reload_steps(server, options, places))


def reload_steps(
    server: ReloadableServer,
    options: Options,
    places: Mapping[str, Position] = MappingProxyType({}),
) -> Steps[list[OptionChange]]:
    """Do what `reload` does, in steps; another reload may run between two of them."""
    before = server.options
    if options.port != before.port and options.port in (RANDOM_PORT, server.client_port):
        options = replace(options, port=before.port)
    options = _with_bound_routes(before, options)
    changes = diff_options(before, options)
    yield
    refused = [_refusal(change, places) for change in changes if change.needs_restart]
    if refused:
        raise ReloadError(f"config reload not supported for {'; '.join(refused)}")
    components = {component for change in changes for component in change.applied_by}
    if options.tls is not None:  # the files may have changed, though not their names
        components.add(Component.TLS)
    if options.cluster is not None and options.cluster.tls is not None:
        components.add(Component.CLUSTER)
    with ExitStack() as undo:
        commits = []
        for component, prepare in PREPARED.items():
            if component in components:
                commits.append(prepare(server, options, undo))
                yield
        if server.options is not before:
            raise ReloadError("the settings were changed by another reload meanwhile")
        undo.pop_all()
    server.options = options
    for commit in commits:
        commit()
    for component, apply in APPLIERS.items():
        if component in components:
            steps = apply(server)
            if steps is not None:
                yield from steps
    if Component.ACCOUNTS in components:
        server.accounts_part.remove(before)
    _log(changes)
    return changes


def _with_bound_routes(before: Options, options: Options) -> Options:
    """Return the options with the port for routes as it was, if the new one is -1."""
    old, new = before.cluster, options.cluster
    if old is None or new is None or old.port == new.port or new.port != RANDOM_PORT:
        return options
    return replace(options, cluster=replace(new, port=old.port))


def _refusal(change: OptionChange, places: Mapping[str, Position]) -> str:
    """Return a change that needs a restart as text, with the place of the setting or section."""
    place = places.get(change.name) or places.get(change.name.partition(".")[0])
    return f"{change} ({place})" if place else str(change)


def _log(changes: list[OptionChange]) -> None:
    """Log each change; other settings of JetStream not if it is switched on or off."""
    is_switched = any(change.name == "jetstream.enabled" for change in changes)
    for change in changes:
        is_part = change.name == "store_dir" or change.name.startswith("jetstream.")
        if not is_switched or not is_part or change.name == "jetstream.enabled":
            _logger.info("Reloaded: %s", change.new_text)


def _prepare_log(server: ReloadableServer, options: Options, undo: ExitStack) -> Commit:
    """Open the log as the options say, if it is this program's log."""
    if server.log is None:
        return lambda: None
    try:
        return server.log.prepare(options, undo)
    except LogError as error:
        raise ReloadError(str(error)) from error


def _prepare_files(server: ReloadableServer, options: Options, undo: ExitStack) -> Commit:
    try:
        return server.files.prepare(options, undo)
    except FileError as error:
        raise ReloadError(str(error)) from error


def _prepare_tls(server: ReloadableServer, options: Options, _undo: ExitStack) -> Commit:
    """Read the certificates, so that new connections get them."""
    try:
        return server.prepare_openings(options)
    except OptionsError as error:
        raise ReloadError(str(error)) from error


def _prepare_cluster(server: ReloadableServer, options: Options, _undo: ExitStack) -> Commit:
    """Read the certificates of routes, so that new ones get them."""
    try:
        part = server.cluster_part
        return (lambda: None) if part is None else part.prepare(options)
    except OptionsError as error:
        raise ReloadError(str(error)) from error


def _apply_pins(server: ReloadableServer) -> None:
    """Close the clients whose certificate is not one of the pinned ones any more."""
    if server.openings is not None:
        server.openings.check_pins(server.clients.values())


def _apply_to_connections(server: ReloadableServer) -> None:
    set_limits(server.settings, server.options)
    server.reactor.pending_bytes_max = pending_bytes_max(server.options)
    server.reactor.sweep_s = sweep_seconds(server.options)
    for client in server.clients.values():
        client.settings_changed()
    _apply_limits_to_routes(server)


def _apply_to_clients(server: ReloadableServer) -> None:
    """Trace connections or not, and close the newest clients beyond `max_connections`."""
    _apply_limits_to_routes(server)
    for client in server.clients.values():
        client.set_trace(server.options.trace)
    most = max(server.options.max_connections, 0)
    excess = list(server.clients.values())[most:]
    for client in excess:
        client.refuse_connection()
    if excess:
        _logger.info("Closed %d connections to fall within max_connections", len(excess))


def _prepare_logins(server: ReloadableServer, options: Options, _undo: ExitStack) -> Commit:
    try:
        return server.accounts_part.prepare_login(options)
    except OptionsError as error:
        raise ReloadError(str(error)) from error


def _apply_to_logins(server: ReloadableServer) -> Steps[None]:
    """Close the clients whose credentials are no longer accepted; first those without a user.

    A client whose user is gone is closed without the hash that a wrong login costs.
    """
    from natsd.auth.configured_logins import ConfiguredLogins

    login = server.accounts_part.authenticator
    known = server.options.user_names
    clients = list(server.clients.values())
    clients.sort(key=lambda client: not client.authorized_user or client.authorized_user in known)
    for some in slices(clients):
        for client in some:
            if client.reason is not None:
                continue
            verdict = client.verdict
            if isinstance(login, ConfiguredLogins) and verdict and login.has_lost(verdict):
                client.user_removed()
            else:
                client.check_login()
        yield


def _prepare_accounts(server: ReloadableServer, options: Options, _undo: ExitStack) -> Commit:
    """Check what accounts share; change the accounts, but remove none before logins are checked."""
    try:
        server.accounts_part.check(options)
    except OptionsError as error:
        raise ReloadError("; ".join(map(str, error.every))) from error
    return partial(server.accounts_part.change, server.options)


def _apply_to_routes(server: ReloadableServer) -> None:
    if server.cluster_part is not None:
        server.cluster_part.apply()


def _apply_limits_to_routes(server: ReloadableServer) -> None:
    if server.cluster_part is not None:
        server.cluster_part.apply_limits()


def _apply_to_closed_clients(server: ReloadableServer) -> None:
    server.closed_clients = deque(server.closed_clients, server.options.max_closed_clients)


PREPARED: Final[Mapping[Component, Callable[[ReloadableServer, Options, ExitStack], Commit]]] = {
    Component.LOG: _prepare_log,
    Component.FILES: _prepare_files,
    Component.TLS: _prepare_tls,
    Component.CLUSTER: _prepare_cluster,
    Component.ACCOUNTS: _prepare_accounts,
    Component.LOGIN: _prepare_logins,
}
"""Components whose changes may fail, with the function that returns how to complete the change."""

APPLIERS: Final[Mapping[Component, Callable[[ReloadableServer], Steps[None] | None]]] = {
    Component.CONNECTIONS: _apply_to_connections,
    Component.CLIENTS: _apply_to_clients,
    Component.CLOSED_CLIENTS: _apply_to_closed_clients,
    Component.LOGIN: _apply_to_logins,
    Component.CLUSTER: _apply_to_routes,
    Component.INFO: lambda server: server.renew_info(),
    Component.TLS: _apply_pins,
    Component.JETSTREAM: lambda server: server.renew_jetstream(),
}
