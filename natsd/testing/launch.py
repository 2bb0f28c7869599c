"""What a server of a test is started with, and what a running one does on the test's behalf.

A `Launch` crosses to the server's process as it is, and gives the same options there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from natsd.config import Options
    from natsd.config.loaded import LoadedConfig
    from natsd.server import Server

LOOPBACK: Final = "127.0.0.1"
SYNC_INTERVAL: Final = "2m"
"""nats-server's default: a killed process loses nothing, and a test waits for no disk."""
_SYNCS: Final = ("sync_interval", "sync")
_PLACES: Final = ("store_dir", "storedir", "store")


@dataclass(frozen=True, slots=True)
class Launch:
    """The settings of a server: those of a configuration file, and over them others by name."""

    settings: Mapping[str, Any]
    config: Path | None = None

    def read(self) -> "tuple[Options, LoadedConfig | None]":
        """Return the options, and the file if there is one. Raises OptionsError."""
        if self.config is None:
            from natsd.config import make_options
            from natsd.config.overrides import with_flags

            flags = {name: value for name, value in self.settings.items() if _is_flag(name)}
            options = make_options(
                **{name: value for name, value in self.settings.items() if name not in flags}
            )
            return (with_flags(options, flags) if flags else options), None
        from natsd.server.start_checks import load_checked

        loaded = load_checked(self.config, self.settings)
        return loaded.options, loaded

    def with_settings(self, **settings: Any) -> "Launch":
        """Return the launch with these settings over its own."""
        return replace(self, settings={**self.settings, **settings})


def _is_flag(name: str) -> bool:
    """Return whether the setting changes one setting of the section `cluster`."""
    return name.startswith("cluster.")


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a running server is."""

    client_url: str
    http_port: int
    """Port of the monitoring endpoints; 0: they are off."""
    cluster_port: int
    """Port for other servers; 0: there is no cluster."""


def addresses_of(server: "Server") -> Addresses:
    """Return where the server is."""
    cluster_port = 0 if server.cluster is None else server.cluster.port
    return Addresses(server.client_url, server.http_port, cluster_port)


def isolated(launch: Launch) -> Launch:
    """Return the launch on the loopback, with a port of the system's choice unless it has one.

    A server without a file gets `SYNC_INTERVAL`. A file's ports for monitoring and for other
    servers become ones of the system's choice, and its log, pid and ports files are left away.
    Raises OptionsError.
    """
    launch = replace(launch, settings={"host": LOOPBACK, "port": -1, **launch.settings})
    if launch.settings.get("cluster") or launch.config is not None:
        launch = replace(launch, settings={**_isolated_cluster(launch), **launch.settings})
    if launch.config is None:
        if launch.settings.get("jetstream") and not _is_given(launch, _SYNCS):
            return launch.with_settings(**{"jetstream.sync_interval": SYNC_INTERVAL})
        return launch
    options, _ = launch.read()
    outside: dict[str, Any] = {
        name: None
        for name in ("log_file", "pid_file", "ports_file_dir")
        if getattr(options, name) is not None
    }
    if options.http_port > 0:
        outside["http_port"] = -1
    return replace(launch, settings={**outside, **launch.settings})


def _isolated_cluster(launch: Launch) -> dict[str, Any]:
    """Return the settings that put the listener for other servers on the loopback."""
    options, _ = launch.read()
    if options.cluster is None or not options.has_cluster:
        return {}
    if launch.config is not None:
        return {"cluster.host": LOOPBACK, "cluster.port": -1}
    return {} if options.cluster.host else {"cluster.host": LOOPBACK}


def needs_directory(launch: Launch) -> bool:
    """Return whether the server has JetStream, and its settings by name no place for it.

    Raises OptionsError.
    """
    if launch.config is None and not launch.settings.get("jetstream"):
        return False
    return launch.read()[0].jetstream.enabled and not _is_given(launch, _PLACES)


def _is_given(launch: Launch, names: tuple[str, ...]) -> bool:
    """Return whether a setting of JetStream is among those by name; `names` are its spellings."""
    settings = launch.settings
    section = settings.get("jetstream")
    inner = {str(key).lower() for key in section} if isinstance(section, Mapping) else set()
    return any(
        name in inner or name in settings or f"jetstream.{name}" in settings for name in names
    )


async def reload_server(server: "Server", launch: Launch) -> list[str]:
    """Make the settings of a running server those of the launch; return the changes as texts.

    Runs on the server's loop. Raises OptionsError or ReloadError; nothing has changed then.
    """
    before = server.config
    if before is None:
        changes = server.reload(launch.read()[0])
    else:
        server.config = replace(before, flags=launch.settings)
        try:
            changes = await server.reload_file()
        except BaseException:
            server.config = before
            raise
    return [change.new_text for change in changes]
