"""The profiling port as an aiohttp application: `/debug/pprof/` and what is below it.

- The paths and parameters are those of Go's net/http/pprof, so `go tool pprof URL` works.
- A profile takes at most `SECONDS_MAX`; of each kind, one is taken at a time.

Source: Go's net/http/pprof; nats-server's `StartProfiler` (server/server.go).
"""

import html
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from natsd.monitor.connections import HttpConnections
from natsd.monitor.internals import command_line
from natsd.monitor.profiling.cpu import ProfileInUse, cpu_profile
from natsd.monitor.profiling.heap import heap_profile
from natsd.monitor.profiling.stacks import AS_PROFILE, goroutine_profile
from natsd.monitor.query import BadParameter, Query

CPU_SECONDS: Final = 30
HEAP_SECONDS: Final = 10
SECONDS_MAX: Final = 300
PROFILES: Final = {
    "profile": f"processor time of Python functions; seconds={CPU_SECONDS}",
    "goroutine": "stacks of threads and tasks; debug=1 groups them, debug=2 shows all as text",
    "heap": f"memory allocated while it is taken, and still in use; seconds={HEAP_SECONDS}",
    "allocs": "the same as heap",
    "cmdline": "the command line of the process, without passwords",
}
NOT_FOR_PYTHON: Final = ("block", "mutex", "threadcreate", "trace")
_BASE: Final = "/debug/pprof/"
Handler = Callable[[Query], Awaitable[web.Response]]


class ProfileEndpoints:
    """The endpoints of one profiling port."""

    def __init__(self) -> None:
        self.connections: HttpConnections | None = None

    def application(self) -> web.Application:
        """Return the application with its routes."""
        routes: dict[str, Handler] = {
            "": _index,
            "profile": _profile,
            "goroutine": _goroutine,
            "heap": _heap,
            "allocs": _heap,
            "cmdline": _cmdline,
            "symbol": _symbol,
        }
        application = web.Application()
        for name, handler in routes.items():
            application.router.add_route("*", _BASE + name, self._served(handler))
        application.router.add_route("*", "/{path:.*}", self._served(_not_found))
        return application

    def _served(self, handler: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            assert self.connections is not None
            with self.connections.answering(request.protocol):
                try:
                    answer = await handler(Query(request.query))
                except BadParameter as error:
                    answer = web.Response(text=f"{error}\n", status=400)
                except ProfileInUse as error:
                    text = f"Could not enable profiling: {error}\n"
                    answer = web.Response(text=text, status=500)
            answer.headers["X-Content-Type-Options"] = "nosniff"
            return answer

        return handle


def _seconds(query: Query, default: int) -> int:
    """Return how long a profile takes, in seconds. Raises BadParameter."""
    seconds = query.whole("seconds") or default
    if not 0 < seconds <= SECONDS_MAX:
        raise BadParameter(f"seconds must be 1 to {SECONDS_MAX}")
    return seconds


async def _index(_query: Query) -> web.Response:
    rows = "\n".join(
        f'<tr><td><a href="{name}">{name}</a></td><td>{html.escape(meaning)}</td></tr>'
        for name, meaning in PROFILES.items()
    )
    page = f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>/debug/pprof/</title></head>
<body>
<h1>Profiles of natsd</h1>
<table>
{rows}
</table>
<p><a href="goroutine?debug=2">all stacks as text</a></p>
</body>
</html>
"""
    return web.Response(text=page, content_type="text/html")


async def _profile(query: Query) -> web.Response:
    return _download("profile", await cpu_profile(_seconds(query, CPU_SECONDS)))


async def _heap(query: Query) -> web.Response:
    return _download("heap", await heap_profile(_seconds(query, HEAP_SECONDS)))


async def _goroutine(query: Query) -> web.Response:
    debug = query.whole("debug")
    profile = goroutine_profile(debug)
    if debug == AS_PROFILE:
        return _download("goroutine", profile)
    return web.Response(body=profile, content_type="text/plain", charset="utf-8")


async def _cmdline(_query: Query) -> web.Response:
    return web.Response(text="\0".join(command_line(sys.argv)))


async def _symbol(_query: Query) -> web.Response:
    return web.Response(text="num_symbols: 0\n")  # profiles contain the names of their functions


async def _not_found(_query: Query) -> web.Response:
    known = ", ".join(PROFILES)
    missing = ", ".join(NOT_FOR_PYTHON)
    text = f"Unknown profile\n\nThere are {_BASE} and below it {known}; Go's {missing} are not.\n"
    return web.Response(text=text, status=404)


def _download(name: str, profile: bytes) -> web.Response:
    return web.Response(
        body=profile,
        content_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )
