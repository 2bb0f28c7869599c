"""JWTs from a web server (nats-server: URLAccResolver)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from natsd.auth.resolver.resolver import NotResolved
from natsd.auth.resolver.url_resolver import UrlResolver
from natsd.testing.jwts import Operator

A = Operator().account("A")
Serve = Callable[[Callable[[web.Request], Awaitable[web.StreamResponse]]], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    runners = []

    async def start(handler: Any) -> str:
        app = web.Application()
        app.router.add_get("/jwt/v1/accounts/{name}", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        runners.append(runner)
        return f"127.0.0.1:{runner.addresses[0][1]}/jwt/v1/accounts"

    yield start
    for runner in runners:
        await runner.cleanup()


async def test_a_jwt_is_fetched_by_its_account(serve: Serve) -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.match_info["name"])
        return web.Response(text=f"{A.jwt}\n")

    resolver = UrlResolver(f"http://{await serve(answer)}", 5)
    assert await resolver.fetch(A.name) == A.jwt
    assert asked == [A.name]
    await resolver.close()


async def test_another_status_is_no_jwt_and_the_login_is_not_shown(serve: Serve) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=404)

    address = await serve(answer)
    resolver = UrlResolver(f"http://user:secret@{address}/", 5)
    with pytest.raises(NotResolved) as raised:
        await resolver.fetch(A.name)
    assert str(raised.value) == f"could not fetch <http://{address}/{A.name}>: 404 Not Found"
    await resolver.close()


async def test_a_long_answer_is_cut_off(serve: Serve) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            for _ in range(100):
                await response.write(b"x" * 65536)
        except ConnectionError:
            pass
        return response

    resolver = UrlResolver(f"http://{await serve(answer)}/", 5)
    with pytest.raises(NotResolved, match="longer than 1048576 bytes"):
        await resolver.fetch(A.name)
    await resolver.close()


async def test_an_answer_that_does_not_come_is_not_waited_for(serve: Serve) -> None:
    released = asyncio.Event()

    async def answer(_request: web.Request) -> web.Response:
        await released.wait()
        return web.Response()

    resolver = UrlResolver(f"http://{await serve(answer)}/", 0.05)
    with pytest.raises(NotResolved, match="no answer within"):
        await resolver.fetch(A.name)
    released.set()
    await resolver.close()


async def test_a_server_that_is_not_there() -> None:
    resolver = UrlResolver("http://127.0.0.1:1/", 5)
    with pytest.raises(NotResolved, match="could not fetch"):
        await resolver.fetch(A.name)
    with pytest.raises(NotResolved, match="store operation not supported for URL Resolver"):
        await resolver.store(A.name, A.jwt)
    await resolver.close()
