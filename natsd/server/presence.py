"""What tells others that a server is there: log lines, pid file, monitoring, ports file.

Lines come in nats-server's order; the files once the ports are ours, so that a second server that
finds them taken does not overwrite the first one's. What fails on the way raises `FileError` or
`ListenError`; `close` undoes as much as was done.
"""

from natsd import monitor
from natsd.monitor.observed import ObservedServer
from natsd.server import banner
from natsd.server.files import (
    ports_file,
    reachable_urls,
    remove_pid_file,
    remove_ports_file,
    write_pid_file,
    write_ports_file,
)


class Presence:
    """One server's traces outside, from its start to its end."""

    def __init__(self, server: ObservedServer) -> None:
        self._server = server
        self._monitor: monitor.Monitor | None = None

    @property
    def http_port(self) -> int:
        """Where monitoring listens; 0 when it does not."""
        return self._monitor.port if self._monitor else 0

    def announce(self) -> None:
        """Before the server listens."""
        banner.log_starting(self._server)

    def open(self) -> None:
        """Once the server listens, and clients wait for nothing but what is recovered."""
        if self._server.options.http_port:
            self._monitor = monitor.start(self._server)

    def complete(self) -> None:
        """Once clients can connect."""
        server, options = self._server, self._server.options
        if options.pid_file:
            write_pid_file(options.pid_file)
        if options.ports_file_dir:
            write_ports_file(ports_file(options.ports_file_dir), self._ports())
        banner.log_listening(server.client_host, server.client_port)
        banner.log_ready()

    async def close(self) -> None:
        """When the server stops, or could not start."""
        options = self._server.options
        if self._monitor:
            await self._monitor.stop()
            self._monitor = None
        if options.ports_file_dir:
            remove_ports_file(ports_file(options.ports_file_dir))
        if options.pid_file:
            remove_pid_file(options.pid_file)

    def _ports(self) -> dict[str, list[str]]:
        server = self._server
        ports = {"nats": reachable_urls("nats", server.client_host, server.client_port)}
        if self._monitor:
            ports["monitoring"] = reachable_urls("http", self._monitor.host, self._monitor.port)
        return ports
