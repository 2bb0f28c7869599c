"""Who may read the monitoring endpoints: passwords, and HTTPS."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from aiohttp import ClientSession, ClientSSLError

from natsd import Server
from natsd.config import make_options
from natsd.testing.certificates import Authority
from tests.clients.secure import Trust

BASE = {"host": "127.0.0.1", "port": -1}
LOGIN = {"http_user": "scraper", "http_password": "sesame"}
HASHED = bcrypt.hashpw(b"sesame", bcrypt.gensalt(4)).decode()
DEADLINE_S = 20.0


@asynccontextmanager
async def monitored(**settings: Any) -> AsyncIterator[tuple[Server, ClientSession]]:
    """Yield a server with monitoring, and a session for requests to it."""
    where = {} if "https_port" in settings else {"http_port": -1}
    async with Server(**BASE, **where, **settings) as server:
        scheme = server.options.http_scheme
        async with ClientSession(f"{scheme}://127.0.0.1:{server.http_port}") as session:
            yield server, session


def authorization(user: str, password: str) -> dict[str, str]:
    """Return the header that logs in."""
    return {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}


async def status(session: ClientSession, path: str, *login: str) -> int:
    """Return the status of the answer; `login` is a user name and a password, or nothing."""
    headers = authorization(*login) if login else {}
    async with session.get(path, headers=headers) as response:
        if response.status == 401:
            assert response.headers["WWW-Authenticate"].startswith("Basic realm=")
        return response.status


# ---- passwords


@pytest.mark.parametrize("stored", ["sesame", HASHED], ids=["plain", "hash"])
async def test_each_request_needs_the_password(stored: str) -> None:
    async with monitored(http_user="scraper", http_password=stored) as (_, session):
        for path in ("/", "/varz", "/connz", "/nowhere", "/healthz?js-enabled-only=1"):
            assert await status(session, path) == 401
            assert await status(session, path, "scraper", "wrong") == 401
            assert await status(session, path, "somebody", "sesame") == 401
        assert await status(session, "/varz", "scraper", "sesame") == 200
        assert await status(session, "/nowhere", "scraper", "sesame") == 404
        assert await status(session, "/healthz") == 200


@pytest.mark.parametrize("header", ["Basic", "Basic ?", "Bearer sesame", "Basic c2VzYW1l", "\xff"])
async def test_other_authorizations_are_refused(header: str) -> None:
    async with monitored(**LOGIN) as (_, session):
        async with session.get("/varz", headers={"Authorization": header}) as response:
            assert response.status == 401


async def test_names_and_passwords_of_any_language_are_accepted() -> None:
    async with monitored(http_user="ann", http_password="Öl & Ähre") as (_, session):
        assert await status(session, "/varz", "ann", "Öl & Ähre") == 200


async def test_a_reload_changes_the_password() -> None:
    async with monitored() as (server, session):
        assert await status(session, "/varz") == 200
        changes = server.reload(replace(server.options, **LOGIN))
        assert [change.new_text for change in changes] == [
            "http_user = scraper",
            "http_password = [REDACTED]",
        ]
        assert await status(session, "/varz") == 401
        assert await status(session, "/varz", "scraper", "sesame") == 200
        server.reload(replace(server.options, http_password=HASHED.replace("$2b", "$2a")))
        assert await status(session, "/varz", "scraper", "sesame") == 200
        server.reload(replace(server.options, http_user="", http_password=""))
        assert await status(session, "/varz") == 200


async def test_the_password_is_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "natsd")
    async with monitored(**LOGIN) as (server, session):
        assert "sesame" not in repr(server.options)
        for path in ("/", "/varz", "/connz?auth=1", "/debug/vars"):
            async with session.get(path, headers=authorization("scraper", "sesame")) as response:
                assert "sesame" not in await response.text()
    assert "sesame" not in caplog.text
    assert "Plaintext passwords detected" in caplog.text


@pytest.mark.parametrize(("host", "warns"), [("0.0.0.0", True), ("127.0.0.1", False)])
async def test_a_password_that_travels_unencrypted_is_told(
    caplog: pytest.LogCaptureFixture, host: str, *, warns: bool
) -> None:
    async with monitored(**LOGIN, http_host=host):
        assert ("are not encrypted" in caplog.text) is warns


# ---- HTTPS


async def peer_certificate(session: ClientSession, context: ssl.SSLContext) -> bytes | None:
    """Return the certificate that a new connection gets, in DER."""
    async with session.get("/varz", ssl=context) as response:
        assert response.status == 200
    reader, writer = await asyncio.open_connection(
        session._base_url.host, session._base_url.port, ssl=context
    )
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await reader.read()
    return bytes(found)


async def test_https_serves_the_endpoints_with_the_servers_certificate(tmp_path: Path) -> None:
    trust = Trust(tmp_path)
    context = trust.client()
    async with monitored(https_port=-1, tls=trust.settings) as (server, session):
        async with session.get("/varz", ssl=context) as response:
            varz = json.loads(await response.text())
        assert (varz["http_port"], varz["https_port"]) == (0, server.http_port)
        assert await peer_certificate(session, context) == trust.server.der
        with pytest.raises(ClientSSLError):  # an authority that signed nothing
            await session.get("/varz", ssl=ssl.create_default_context())
        reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
        writer.write(b"GET /varz HTTP/1.1\r\nHost: a\r\n\r\n")  # without TLS
        async with asyncio.timeout(DEADLINE_S):
            assert not (await reader.read()).startswith(b"HTTP")
        writer.close()
        async with session.get("/healthz", ssl=context) as response:
            assert response.status == 200


async def test_https_asks_for_no_certificate(tmp_path: Path) -> None:
    trust = Trust(tmp_path)
    tls = {**trust.settings, "ca_file": str(trust.authority.ca_file), "verify": True}
    async with monitored(https_port=-1, tls=tls) as (_, session):
        async with session.get("/varz", ssl=trust.client()) as response:
            assert response.status == 200


@pytest.mark.parametrize("more", [{}, {"verify_and_map": True}])
async def test_https_has_the_certificates_of_a_reload(tmp_path: Path, more: Any) -> None:
    (tmp_path / "other").mkdir()
    trust, other = Trust(tmp_path), Authority(tmp_path / "other")
    renewed = other.sign("renewed")
    tls = {**trust.settings, **more, "ca_file": str(trust.authority.ca_file)}
    async with monitored(https_port=-1, tls=tls) as (server, session):
        assert await peer_certificate(session, trust.client()) == trust.server.der
        trust.server.cert_file.write_bytes(renewed.cert_file.read_bytes())
        trust.server.key_file.write_bytes(renewed.key_file.read_bytes())
        context = ssl.create_default_context(cafile=other.ca_file)
        server.reload(server.options)
        assert await peer_certificate(session, context) == renewed.der


async def test_https_needs_certificates_and_excludes_http(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="TLS cert and key required for HTTPS"):
        make_options(https_port=8443)
    tls = Trust(tmp_path).settings
    with pytest.raises(ValueError, match=r"can't specify both HTTP .8222. and HTTPs .8443. ports"):
        make_options(https_port=8443, http_port=8222, tls=tls)


async def test_the_ports_file_names_https(tmp_path: Path) -> None:
    tls = Trust(tmp_path).settings
    (tmp_path / "ports").mkdir()
    async with monitored(https_port=-1, tls=tls, ports_file_dir=tmp_path / "ports") as (server, _):
        (file,) = (tmp_path / "ports").iterdir()
        ports = json.loads(file.read_text())
        assert ports["monitoring"] == [f"https://127.0.0.1:{server.http_port}"]


async def test_a_long_answer_arrives_whole_over_https(tmp_path: Path) -> None:
    trust = Trust(tmp_path)
    tls = {**trust.settings}
    async with monitored(https_port=-1, tls=tls, allow_non_tls=True) as (server, session):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
        writer.write(b"CONNECT {}\r\n" + b"".join(b"SUB a.%d %d\r\n" % (n, n) for n in range(9000)))
        writer.write(b"PING\r\n")
        while await reader.readline() != b"PONG\r\n":
            pass
        async with session.get("/connz?subs=detail", ssl=trust.client()) as response:
            (row,) = json.loads(await response.text())["connections"]
        assert len(row["subscriptions_list_detail"]) == 9000
        writer.close()


async def test_handshakes_that_never_come_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PATIENCE_S", "SWEEP_S"):
        monkeypatch.setattr(f"natsd.monitor.connections.{name}", 0.1)
    trust = Trust(tmp_path)
    async with monitored(https_port=-1, tls=trust.settings) as (server, session):
        async with session.get("/healthz", ssl=trust.client()) as response:
            assert response.status == 200
        for first in (b"", b"\x16\x03\x01"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
            writer.write(first)
            async with asyncio.timeout(DEADLINE_S):
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
            writer.close()
