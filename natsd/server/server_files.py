"""The outside signs of a running server: log lines, monitoring, profiling, pid and ports files.

The log lines have nats-server's order. The files are written after the ports are bound, so that a
second server whose ports are in use does not overwrite the first server's files. Errors raise
`FileError` or `ListenError`; `close` undoes the completed steps.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from natsd.config import Options
from natsd.server import banner
from natsd.server.files import (
    ports_file,
    reachable_urls,
    remove_pid_file,
    remove_ports_file,
    write_pid_file,
    write_ports_file,
)

if TYPE_CHECKING:
    from natsd.monitor.http_server import Monitor
    from natsd.monitor.observed import ObservedServer
    from natsd.monitor.profiling.port import ProfilingPort


class ServerFiles:
    """The log lines, files and monitoring of one server, from its start to its stop."""

    def __init__(self, server: "ObservedServer") -> None:
        self._server = server
        self._monitor: Monitor | None = None
        self._profiling: ProfilingPort | None = None

    @property
    def http_port(self) -> int:
        """Port of the monitoring endpoints; 0: they are off."""
        return self._monitor.port if self._monitor else 0

    def announce(self) -> None:
        """Log the first lines, and start profiling; called before the server listens.

        Raises ListenError.
        """
        banner.log_starting(self._server)
        if self._server.options.prof_port:
            from natsd.monitor.profiling import port  # few servers are profiled

            self._profiling = port.start(self._server.options)

    def open(self) -> None:
        """Start monitoring; called when the server listens, before JetStream recovers.

        Raises ListenError.
        """
        options = self._server.options
        if options.http_port or options.https_port:
            from natsd.monitor import http_server  # few servers have endpoints

            self._monitor = http_server.start(self._server)

    def complete(self) -> None:
        """Write the files and log the last lines; called when clients can connect.

        Raises FileError.
        """
        server, options = self._server, self._server.options
        if options.pid_file:
            write_pid_file(options.pid_file)
        if options.ports_file_dir:
            write_ports_file(ports_file(options.ports_file_dir), self._ports())
        banner.log_listening(server.client_host, server.client_port, options)
        banner.log_ready()

    def prepare(self, options: Options, undo: ExitStack) -> Callable[[], None]:
        """Write the pid file and the ports file where the options of a reload want them.

        Return the function that removes those that were elsewhere; `undo` gets what removes the new
        ones. Raises FileError.
        """
        before = self._server.options
        removal = ExitStack()
        if options.pid_file != before.pid_file:
            if options.pid_file:
                undo.callback(remove_pid_file, options.pid_file)
                write_pid_file(options.pid_file)
            if before.pid_file:
                removal.callback(remove_pid_file, before.pid_file)
        if options.ports_file_dir != before.ports_file_dir:
            if options.ports_file_dir:
                undo.callback(remove_ports_file, ports_file(options.ports_file_dir))
                write_ports_file(ports_file(options.ports_file_dir), self._ports())
            if before.ports_file_dir:
                removal.callback(remove_ports_file, ports_file(before.ports_file_dir))
        return removal.close

    async def close(self) -> None:
        """Stop monitoring and remove the files; called when the server stops or could not start."""
        options = self._server.options
        if self._monitor:
            await self._monitor.stop()
            self._monitor = None
        if self._profiling:
            await self._profiling.stop()
            self._profiling = None
        if options.ports_file_dir:
            remove_ports_file(ports_file(options.ports_file_dir))
        if options.pid_file:
            remove_pid_file(options.pid_file)

    def _ports(self) -> dict[str, list[str]]:
        server = self._server
        scheme = "nats" if server.options.tls is None else "tls"
        ports = {"nats": reachable_urls(scheme, server.client_host, server.client_port)}
        if self._monitor:
            ports["monitoring"] = reachable_urls(
                server.options.http_scheme, self._monitor.host, self._monitor.port
            )
        cluster = server.cluster
        if cluster is not None:
            scheme = "nats" if cluster.options.tls is None else "tls"
            ports["cluster"] = reachable_urls(scheme, cluster.address, cluster.port)
        if self._profiling:
            ports["profile"] = reachable_urls("http", self._profiling.host, self._profiling.port)
        return ports
