"""Monitoring over HTTP: `/varz`, `/connz`, `/healthz` and others.

- `start` binds the port and returns at once. aiohttp takes longer to import than the whole server
  takes to start, so it is imported in a thread; meanwhile the kernel queues connections.
- With `https_port` the port speaks TLS, with the certificates of the client port as they are at the
  time of the connection. As in nats-server, no certificate is asked for.
- If descriptors or memory are missing, monitoring waits for them and begins later.
- Monitoring reads the server through `natsd.monitor.observed` and changes nothing, with one
  exception: the system account may ask for a client to be closed, or to be told to reconnect
  elsewhere (services.py).
"""

import asyncio
import importlib
import logging
import socket
from dataclasses import replace
from ipaddress import ip_address
from typing import TYPE_CHECKING

from natsd.clients.listener import ListenError, bound_port, host_port, listen
from natsd.monitor.clock import Clock
from natsd.monitor.observed import ObservedServer
from natsd.store.disk.disk import is_transient
from natsd.tls.errors import TlsError

if TYPE_CHECKING:
    import ssl

    from aiohttp.web import AppRunner

    from natsd.monitor.connections import HttpConnections
    from natsd.tls.context import TlsContext

_logger = logging.getLogger("natsd.monitor")

SHUTDOWN_S = 1.0
RETRY_S = 1.0
LINGER_S = 1.0


class Monitor:
    """The monitoring endpoints of one server, from binding the port until `stop`."""

    def __init__(self, server: ObservedServer, listener: socket.socket) -> None:
        self._server = server
        self._listener = listener
        self._runner: AppRunner | None = None
        self._connections: HttpConnections | None = None
        self._accepting: asyncio.Server | None = None
        self._clients_tls: TlsContext | None = None
        self._own_tls: TlsContext | None = None
        self.host = server.options.http_address
        self.port = bound_port(listener)
        self._serving = asyncio.create_task(self._begin(), name="natsd-monitor")

    async def stop(self) -> None:
        """Close the port and its connections."""
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)
        await self._end()
        self._listener.close()

    async def _begin(self) -> None:
        """Serve requests; retry every RETRY_S while descriptors or memory are missing."""
        is_told = False
        while True:
            try:
                return await self._serve()
            except Exception as error:
                where = host_port(self.host, self.port)
                if not _may_pass(error):
                    return _logger.exception("Error starting monitor on %s", where)
                if not is_told:
                    _logger.error("Monitoring on %s starts later: %s", where, error)
                is_told = True
            await self._end()
            await asyncio.sleep(RETRY_S)

    async def _serve(self) -> None:
        await asyncio.to_thread(importlib.import_module, "natsd.monitor.endpoints")
        from aiohttp import web

        from natsd.monitor.connections import HttpConnections
        from natsd.monitor.endpoints import Endpoints
        from natsd.monitor.http_log import HTTP_LOGGER

        endpoints = Endpoints(self._server, self.port, Clock())
        self._runner = web.AppRunner(
            endpoints.application(),
            access_log=None,
            logger=HTTP_LOGGER,
            handle_signals=False,
            shutdown_timeout=SHUTDOWN_S,
            lingering_time=LINGER_S,
        )
        await self._runner.setup()
        assert self._runner.server is not None
        loop = asyncio.get_running_loop()
        self._connections = endpoints.connections = HttpConnections(loop, self._runner.server)
        if self._server.options.https_port:
            await self._connections.accept(self._listener, self._tls)
        self._accepting = await loop.create_server(self._connections.protocol, sock=self._listener)

    def _tls(self) -> "ssl.SSLContext":
        """Return the settings of a handshake that begins now."""
        openings = self._server.openings
        assert openings is not None
        assert openings.tls is not None
        if openings.tls is not self._clients_tls:
            self._clients_tls = openings.tls
            try:
                self._own_tls = _without_verification(openings.tls)
            except TlsError as error:  # the files have changed since the reload
                _logger.error("Monitoring keeps its certificates: %s", error)
        assert self._own_tls is not None
        return self._own_tls.context

    async def _end(self) -> None:
        """Undo `_serve`, whether it was complete or not."""
        if self._accepting:
            self._accepting.close()
        if self._runner:
            await self._runner.cleanup()
        if self._connections:
            self._connections.close()
        self._accepting = self._runner = self._connections = None


def _may_pass(error: Exception) -> bool:
    """Return whether the error is a lack of descriptors or memory.

    If a compiled module cannot be opened for lack of either, the system only reports that the
    module cannot be loaded, so an ImportError counts as one too.
    """
    is_missing = isinstance(error, ModuleNotFoundError)
    return is_transient(error) or (isinstance(error, ImportError) and not is_missing)


def start(server: ObservedServer) -> Monitor:
    """Listen at the configured monitoring address; requests are answered a moment later.

    Raises ListenError if the port cannot be bound.
    """
    options = server.options
    try:
        listener = listen(options.http_address, options.http_port or options.https_port)
    except ListenError as error:
        raise ListenError(
            f"Can't start monitoring: can't listen to the monitor port: {error}"
        ) from None
    monitor = Monitor(server, listener)
    where = host_port(monitor.host, monitor.port)
    _logger.info("Starting %s monitor on %s", options.http_scheme, where)
    if options.http_password and not options.https_port and not _is_loopback(monitor.host):
        _logger.warning("Passwords for monitoring on %s are not encrypted: use https_port", where)
    return monitor


def _is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to the host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _without_verification(tls: "TlsContext") -> "TlsContext":
    """Return the same settings for peers without a certificate."""
    from natsd.tls.context import TlsContext

    options = tls.options
    if not (options.verify or options.verify_and_map):
        return tls
    return TlsContext(replace(options, verify=False, verify_and_map=False))
