"""The profiling port of `prof_port`: it is bound at once, and answers a moment later.

aiohttp is imported in a thread, as for monitoring (http_server.py). Connections are bounded as
there (connections.py).
"""

import asyncio
import importlib
import logging
import socket
from typing import TYPE_CHECKING

from natsd.clients.listener import ListenError, bound_port, listen
from natsd.config import Options
from natsd.monitor.http_server import LINGER_S, SHUTDOWN_S

if TYPE_CHECKING:
    from aiohttp.web import AppRunner

    from natsd.monitor.connections import HttpConnections

_logger = logging.getLogger("natsd.monitor")


class ProfilingPort:
    """The endpoints below `/debug/pprof/`, from binding the port until `stop`."""

    def __init__(self, host: str, listener: socket.socket) -> None:
        self.host = host
        self.port = bound_port(listener)
        self._listener = listener
        self._runner: AppRunner | None = None
        self._connections: HttpConnections | None = None
        self._accepting: asyncio.Server | None = None
        self._serving = asyncio.create_task(self._serve(), name="natsd-profiling")

    async def stop(self) -> None:
        """Close the port and its connections."""
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)
        if self._accepting:
            self._accepting.close()
        if self._runner:
            await self._runner.cleanup()
        if self._connections:
            self._connections.close()
        self._listener.close()

    async def _serve(self) -> None:
        try:
            await asyncio.to_thread(importlib.import_module, "natsd.monitor.profiling.endpoints")
            from aiohttp import web

            from natsd.monitor.connections import HttpConnections
            from natsd.monitor.http_log import HTTP_LOGGER
            from natsd.monitor.profiling.endpoints import ProfileEndpoints

            endpoints = ProfileEndpoints()
            self._runner = web.AppRunner(
                endpoints.application(),
                access_log=None,
                logger=HTTP_LOGGER,
                handle_signals=False,
                handler_cancellation=True,  # a profile that nobody waits for is given up
                shutdown_timeout=SHUTDOWN_S,
                lingering_time=LINGER_S,
            )
            await self._runner.setup()
            assert self._runner.server is not None
            loop = asyncio.get_running_loop()
            self._connections = endpoints.connections = HttpConnections(loop, self._runner.server)
            self._accepting = await loop.create_server(
                self._connections.protocol, sock=self._listener
            )
        except Exception:
            _logger.exception("error starting profiler")


def start(options: Options) -> ProfilingPort:
    """Listen for requests for profiles. Raises ListenError if the port cannot be bound."""
    try:
        listener = listen(options.host, options.prof_port)
    except ListenError as error:
        raise ListenError(f"error starting profiler: {error}") from None
    profiling = ProfilingPort(options.host, listener)
    _logger.info("profiling port: %d", profiling.port)
    return profiling
