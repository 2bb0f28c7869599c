"""The monitoring endpoints as an aiohttp application.

- Answers are JSON, indented by two spaces, and scripts of other origins may read them; `/metrics`
  is text. A bad parameter is answered 400 in plain text, and an unknown path 404
  (unknown_paths.py).
- With a password every request is checked first (access.py).
- Every request is counted by its endpoint, for `http_req_stats` in `/varz`.
- Answers are written in turns (turns.py), a long one while it is made, so that a slow reader costs
  no memory. `/subsz` is made, and the numbers of `/metrics` are read, before they are written: at
  most `LARGE_AT_ONCE` of these answers are under way.
- While an answer is written, waiting for the peer to read takes at most `ANSWER_S` in all.
- `/` is the dashboard (natsd/monitor/dashboard); its scripts ask `/summaryz`.
- Nothing here changes the server.
"""

import asyncio
import contextlib
import logging
import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final

import msgspec.json
from aiohttp import web

from natsd.core.quoting import html_safe
from natsd.monitor.access import Access, refusal
from natsd.monitor.answers import Answers
from natsd.monitor.clock import Clock
from natsd.monitor.connections import HttpConnections
from natsd.monitor.dashboard import FILES, HEADERS, PAGE, dashboard_file
from natsd.monitor.internals import NO_RAFT, stacksz
from natsd.monitor.json_text import pieces
from natsd.monitor.metrics import Exposition, Metrics
from natsd.monitor.observed import ObservedServer
from natsd.monitor.query import BadParameter, Query, read_parameters
from natsd.monitor.summary.summaryz import Summary
from natsd.monitor.unknown_paths import unknown_path

HTTP_OK: Final = 200
ANY_ORIGIN: Final = {"Access-Control-Allow-Origin": "*"}
JSON_TYPE: Final = "application/json"
LARGE: Final = ("/subsz", "/metrics")
LARGE_AT_ONCE: Final = 4
ANSWER_S: Final = 60.0
WRITTEN_BYTES: Final = 64 * 1024
"""Bytes of a long answer that are written at once.

The system takes 0.4 µs per KiB for them, and clients wait meanwhile (2026-11-24).
"""

_logger = logging.getLogger("natsd.monitor")

Answer = web.Response | Exposition | dict[str, Any]
"""A response, metrics, or a mapping to be written as JSON."""
Handler = Callable[[Query], Awaitable[Answer]]


class Endpoints:
    """The HTTP endpoints of one server."""

    def __init__(self, server: ObservedServer, http_port: int, clock: Clock) -> None:
        self._base_path = server.options.http_base_path
        self._answers = Answers(server, clock, http_port)
        self._requests = server.http_requests
        self._access = Access(server)
        self._summary = Summary(server, clock, self._answers.turns)
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._metrics = Metrics(self._answers)
        self.connections: HttpConnections | None = None

    def application(self) -> web.Application:
        """Return the application with its routes, under the base path."""
        base = posixpath.join("/", self._base_path)
        answers = self._answers
        routes: dict[str, tuple[str, Handler]] = {
            "/": ("/", self._file(PAGE)),
            **{f"/{name}": ("", self._file(name)) for name in FILES if name != PAGE},
            "/summaryz": ("/summaryz", self._summaryz),
            "/varz": ("/varz", answers.varz),
            "/connz": ("/connz", answers.connz),
            "/routez": ("/routez", answers.routez),
            "/gatewayz": ("/gatewayz", answers.gatewayz),
            "/leafz": ("/leafz", answers.leafz),
            "/subsz": ("/subsz", answers.subsz),
            "/subscriptionsz": ("/subsz", answers.subsz),
            "/stacksz": ("/stacksz", self._stacksz),
            "/accountz": ("/accountz", answers.accountz),
            "/accstatz": ("/accstatz", answers.accstatz),
            "/jsz": ("/jsz", answers.jsz),
            "/healthz": ("/healthz", self._healthz),
            "/ipqueuesz": ("/ipqueuesz", answers.ipqueuesz),
            "/raftz": ("/raftz", self._raftz),
            "/metrics": ("/metrics", self._metrics.exposition),
            "/debug/vars": ("/expvarz", self._expvarz),
        }
        application = web.Application()  # without middlewares, see _served
        application.on_response_prepare.append(_complete_headers)
        application.on_cleanup.append(self._end)
        application.cleanup_ctx.append(self._keep_history)
        for path, (counted_as, handler) in routes.items():
            full_path = posixpath.normpath(base + path).replace("//", "/")
            application.router.add_route("*", full_path, self._served(counted_as, handler))
        application.router.add_route("*", "/{path:(?s:.*)}", self._served("", None))
        return application

    def _served(
        self, name: str, handler: Handler | None
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Return the request handler that aiohttp calls; without a `handler`, for other paths.

        This wrapper is no middleware, because aiohttp keeps handlers with middlewares in a cache of
        its module, which would keep the server alive.
        """

        async def handle(request: web.Request) -> web.StreamResponse:
            if name:
                self._requests[name] = self._requests.get(name, 0) + 1
            assert self.connections is not None
            with self.connections.answering(request.protocol):
                try:
                    if not await self._access.allows(request, name):
                        return refusal()
                    if handler is None:
                        return unknown_path(request)
                    parameters = read_parameters(request.raw_path.partition("?")[2])
                    query = Query(parameters, request.headers)
                    async with self._large if name in LARGE else contextlib.nullcontext():
                        answer = await handler(query)
                        if isinstance(answer, web.Response):
                            return answer
                        return await self._write(request, answer)
                except (TimeoutError, ConnectionResetError):  # the peer does not read, or is gone
                    if request.transport is not None:
                        request.transport.abort()
                    raise asyncio.CancelledError from None
                except BadParameter as error:
                    return web.Response(text=str(error), status=400)

        return handle

    async def _write(
        self, request: web.Request, answer: Exposition | dict[str, Any]
    ) -> web.StreamResponse:
        """Write the answer; one that takes more than a turn is sent while it is made."""
        if isinstance(answer, Exposition):
            return await self._send(request, answer.pieces, answer.headers)
        headers = {"Content-Type": JSON_TYPE} | ANY_ORIGIN
        return await self._send(request, pieces(answer, pretty=True), headers)

    async def _send(
        self, request: web.Request, text: Iterator[bytes], headers: dict[str, str]
    ) -> web.StreamResponse:
        chunk, is_last = await self._chunk(text)
        if is_last:
            return web.Response(body=chunk, headers=headers)
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        await response.write(chunk)
        loop = asyncio.get_running_loop()
        patience_s = ANSWER_S
        while not is_last:
            chunk, is_last = await self._chunk(text)
            asked_s = loop.time()
            async with asyncio.timeout(patience_s):
                await response.write(chunk)
            patience_s -= loop.time() - asked_s
        await response.write_eof()
        return response

    async def _chunk(self, text: Iterator[bytes]) -> tuple[bytes, bool]:
        """Return the next part of the body, and whether it is the last."""
        made = bytearray()
        is_last = False
        while not is_last and len(made) < WRITTEN_BYTES:
            chunk, is_last = await self._answers.turns.chunk(text)
            made += chunk
        return bytes(made), is_last

    async def _keep_history(self, application: web.Application) -> AsyncIterator[None]:
        """Take samples for the summary while requests are served."""
        taking = asyncio.create_task(self._summary.run(), name="natsd-history")
        yield
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)

    def _file(self, name: str) -> Handler:
        """Return the handler of a file of the dashboard."""

        async def handle(query: Query) -> Answer:
            body = dashboard_file(name, self._base_path)
            return web.Response(
                body=body, content_type=FILES[name], charset="utf-8", headers=HEADERS
            )

        return handle

    async def _summaryz(self, query: Query) -> Answer:
        answer = await self._summary.answer(query.unsigned("after"))
        return web.Response(
            body=html_safe(msgspec.json.encode(answer)),
            content_type=JSON_TYPE,
            headers=ANY_ORIGIN | {"Cache-Control": "no-store"},
        )

    async def _stacksz(self, query: Query) -> Answer:
        headers = ANY_ORIGIN | {"Content-Type": JSON_TYPE}
        text = await self._answers.turns.run(stacksz())
        return web.Response(body=text.encode(), headers=headers)

    async def _expvarz(self, query: Query) -> Answer:
        """Return the memory statistics; as in Go, scripts of other origins may not read them."""
        text = msgspec.json.encode(await self._answers.expvarz(query))
        return web.Response(body=html_safe(text), content_type=JSON_TYPE, charset="utf-8")

    async def _end(self, application: web.Application) -> None:
        self._metrics.close()

    async def _raftz(self, query: Query) -> Answer:
        return web.Response(text=NO_RAFT, status=404)

    async def _healthz(self, query: Query) -> Answer:
        if query.flag("js-enabled"):
            _logger.warning("Healthcheck: js-enabled deprecated, use js-enabled-only instead")
        status, answer = await self._answers.health(query)
        if status != HTTP_OK:
            _logger.warning("Healthcheck failed: %s", answer.get("error") or answer["errors"])
        return web.Response(
            body=html_safe(msgspec.json.encode(answer)),
            status=status,
            content_type=JSON_TYPE,
            headers=ANY_ORIGIN,
        )


async def _complete_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Let browsers take no answer for another type than it has, and tell no versions."""
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.popall("Server", None)
