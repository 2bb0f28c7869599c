"""The monitoring endpoints as an aiohttp application.

- JSON, indented by two spaces, open to scripts of other origins; a bad parameter is answered 400 in
  plain text, and an unknown path 404.
- Every request is counted by its endpoint, for `http_req_stats` in `/varz`.
- Nothing here changes the server.
"""

import logging
import posixpath
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec.json
from aiohttp import web

from natsd.monitor.clock import Clock
from natsd.monitor.connz import ConnzOptions, connz
from natsd.monitor.healthz import HealthzOptions, healthz
from natsd.monitor.index import index_page
from natsd.monitor.jsz import JszOptions, jsz
from natsd.monitor.observed import ObservedServer
from natsd.monitor.process_usage import ProcessorUse, processor_time_ns
from natsd.monitor.query import BadParameter, Query
from natsd.monitor.subsz import SubszOptions, subsz
from natsd.monitor.varz import varz

HTTP_OK: Final = 200
ANY_ORIGIN: Final = {"Access-Control-Allow-Origin": "*"}
_HTML_SENSITIVE: Final = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"))

_logger = logging.getLogger("natsd.monitor")

Handler = Callable[[Query], Awaitable[web.Response]]


class Endpoints:
    """Answers monitoring requests about one server."""

    def __init__(self, server: ObservedServer, http_port: int, clock: Clock) -> None:
        self._server = server
        self._http_port = http_port
        self._clock = clock
        self._requests: Counter[str] = Counter()
        self._processor = ProcessorUse(clock.monotonic_ns(), processor_time_ns())

    def application(self) -> web.Application:
        """The routes, under the base path."""
        base = posixpath.join("/", self._server.options.http_base_path)
        routes: dict[str, tuple[str, Handler]] = {
            "/": ("/", self._index),
            "/varz": ("/varz", self._varz),
            "/connz": ("/connz", self._connz),
            "/subsz": ("/subsz", self._subsz),
            "/subscriptionsz": ("/subsz", self._subsz),
            "/jsz": ("/jsz", self._jsz),
            "/healthz": ("/healthz", self._healthz),
        }
        application = web.Application()  # middlewares: see _counted
        application.on_response_prepare.append(_keep_versions_quiet)
        for path, (counted_as, handler) in routes.items():
            full_path = posixpath.normpath(base + path).replace("//", "/")
            application.router.add_route("*", full_path, self._counted(counted_as, handler))
        application.router.add_route("*", "/{path:.*}", _not_found)
        return application

    def _counted(
        self, name: str, handler: Handler
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """What aiohttp calls. No middleware: aiohttp keeps handlers with middlewares in a cache of
        the module, and with them the server."""

        async def handle(request: web.Request) -> web.Response:
            self._requests[name] += 1
            try:
                return await handler(Query(request.query))
            except BadParameter as error:
                return web.Response(text=str(error), status=400)

        return handle

    async def _index(self, query: Query) -> web.Response:
        return web.Response(text=index_page(), content_type="text/html")

    async def _varz(self, query: Query) -> web.Response:
        percent = self._processor.sample(self._clock.monotonic_ns(), processor_time_ns())
        return _json(
            varz(
                self._server,
                self._clock,
                http_port=self._http_port,
                processor_percent=percent,
                requests=self._requests,
            )
        )

    async def _connz(self, query: Query) -> web.Response:
        return _json(await connz(self._server, ConnzOptions.of(query), self._clock))

    async def _subsz(self, query: Query) -> web.Response:
        return _json(await subsz(self._server, SubszOptions.of(query), self._clock))

    async def _jsz(self, query: Query) -> web.Response:
        return _json(await jsz(self._server, JszOptions.of(query), self._clock))

    async def _healthz(self, query: Query) -> web.Response:
        if query.flag("js-enabled"):
            _logger.warning("Healthcheck: js-enabled deprecated, use js-enabled-only instead")
        status, answer = healthz(self._server, HealthzOptions.of(query))
        if status != HTTP_OK:
            _logger.warning("Healthcheck failed: %s", answer.get("error") or answer["errors"])
        return _response(msgspec.json.encode(answer), status)


def _json(answer: dict[str, Any]) -> web.Response:
    return _response(msgspec.json.format(msgspec.json.encode(answer), indent=2))


def _response(body: bytes, status: int = 200) -> web.Response:
    for character, escape in _HTML_SENSITIVE:
        body = body.replace(character, escape)
    return web.Response(
        body=body, status=status, content_type="application/json", headers=ANY_ORIGIN
    )


async def _keep_versions_quiet(request: web.Request, response: web.StreamResponse) -> None:
    """Nobody needs to know which HTTP library answers, least of all its version."""
    response.headers.popall("Server", None)


async def _not_found(request: web.Request) -> web.Response:
    return web.Response(text="404 page not found\n", status=404)
