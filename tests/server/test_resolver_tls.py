"""`resolver_tls`: whom requests to a URL resolver trust, and what they present."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from natsd.auth.resolver.resolver import NotResolved
from natsd.auth.resolver.url_resolver import UrlResolver
from natsd.config import OptionsError
from natsd.config.tls_options import TlsOptions
from natsd.server.resolver_tls import resolver_context
from natsd.testing.certificates import Authority
from natsd.testing.jwts import Operator

A = Operator().account("A")


@asynccontextmanager
async def served(authority: Authority) -> AsyncIterator[str]:
    """A web server that wants a certificate, and has the JWT of an account."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = authority.sign("server")
    context.load_cert_chain(pair.cert_file, pair.key_file)
    context.load_verify_locations(authority.ca_file)
    context.verify_mode = ssl.CERT_REQUIRED

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=A.jwt)

    app = web.Application()
    app.router.add_get("/{name}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://localhost:{runner.addresses[0][1]}/"
    await runner.cleanup()


async def test_both_sides_present_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    client = authority.sign("client")
    options = TlsOptions(
        ca_file=authority.ca_file, cert_file=client.cert_file, key_file=client.key_file
    )
    async with served(authority) as url:
        resolver = UrlResolver(url, 10, resolver_context(options))
        assert await resolver.fetch(A.name) == A.jwt
        await resolver.close()
        stranger = UrlResolver(url, 10, resolver_context(TlsOptions(insecure=True)))
        with pytest.raises(NotResolved):
            await stranger.fetch(A.name)
        await stranger.close()
        unknown = UrlResolver(url, 10)
        with pytest.raises(NotResolved):
            await unknown.fetch(A.name)
        await unknown.close()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="resolver_tls"):
        resolver_context(TlsOptions(ca_file=tmp_path / "missing.pem"))
