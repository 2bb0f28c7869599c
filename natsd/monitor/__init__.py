"""Monitoring: over HTTP (`/varz`, `/connz`, `/healthz` and others), and over NATS (services.py).

- `start` binds the port and returns at once: the kernel queues connections while aiohttp, which
  takes longer to import than the whole server takes to start, is imported in a thread.
- What it lacks of descriptors and memory it waits for: monitoring then begins later.
- Monitoring reads the server through `natsd.monitor.observed` and changes nothing; but the system
  account may have a client closed, or sent away.
"""

import asyncio
import importlib
import logging
import socket
from typing import TYPE_CHECKING

from natsd.clients.listener import ListenError, bound_port, host_port, listen
from natsd.monitor.clock import Clock
from natsd.monitor.observed import ObservedServer
from natsd.store.disk import is_passing

if TYPE_CHECKING:
    from aiohttp.web import AppRunner

    from natsd.monitor.connections import Connections

_logger = logging.getLogger("natsd.monitor")

SHUTDOWN_S = 1.0
RETRY_S = 1.0
LINGER_S = 1.0


class Monitor:
    """The monitoring endpoints of one server, from bind to stop."""

    def __init__(self, server: ObservedServer, listener: socket.socket) -> None:
        self._server = server
        self._listener = listener
        self._runner: AppRunner | None = None
        self._connections: Connections | None = None
        self._accepting: asyncio.Server | None = None
        self.host = server.options.http_address
        self.port = bound_port(listener)
        self._serving = asyncio.create_task(self._begin(), name="natsd-monitor")

    async def stop(self) -> None:
        """Close the port, and the connections on it."""
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)
        await self._end()
        self._listener.close()

    async def wait_serving(self) -> None:
        """Return once requests are answered, not only queued."""
        await asyncio.shield(self._serving)

    async def _begin(self) -> None:
        """Serve as soon as there are descriptors and memory for it."""
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

        from natsd.monitor.connections import Connections
        from natsd.monitor.endpoints import Endpoints

        endpoints = Endpoints(self._server, self.port, Clock())
        self._runner = web.AppRunner(
            endpoints.application(),
            access_log=None,
            handle_signals=False,
            shutdown_timeout=SHUTDOWN_S,
            lingering_time=LINGER_S,
        )
        await self._runner.setup()
        assert self._runner.server is not None
        loop = asyncio.get_running_loop()
        self._connections = endpoints.connections = Connections(loop, self._runner.server)
        self._accepting = await loop.create_server(self._connections.protocol, sock=self._listener)

    async def _end(self) -> None:
        """Nothing of the serving stays, whether it began or not."""
        if self._accepting:
            self._accepting.close()
        if self._runner:
            await self._runner.cleanup()
        if self._connections:
            self._connections.close()
        self._accepting = self._runner = self._connections = None


def _may_pass(error: Exception) -> bool:
    """Whether a descriptor or memory was missing. Of a compiled module that cannot be opened for
    want of one, the system says no more than that it cannot be loaded."""
    is_missing = isinstance(error, ModuleNotFoundError)
    return is_passing(error) or (isinstance(error, ImportError) and not is_missing)


def start(server: ObservedServer) -> Monitor:
    """Listen where the options say; raises `ListenError`. Requests are answered a moment later."""
    options = server.options
    try:
        listener = listen(options.http_address, options.http_port)
    except ListenError as error:
        raise ListenError(
            f"Can't start monitoring: can't listen to the monitor port: {error}"
        ) from None
    monitor = Monitor(server, listener)
    _logger.info("Starting http monitor on %s", host_port(monitor.host, monitor.port))
    return monitor
