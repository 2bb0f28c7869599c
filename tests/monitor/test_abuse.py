"""Hostile requests and hostile names: clean answers or closed connections, and clients go on.

Each test ends with a NATS client that publishes to itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
from collections.abc import AsyncIterator

import pytest

from natsd import Server
from natsd.monitor.connections import CONNECTIONS_MAX

DEADLINE_S = 30.0
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
CLOSING = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
STATUSES = (
    b"HTTP/1.1 200",
    b"HTTP/1.1 400",
    b"HTTP/1.1 404",
    b"HTTP/1.1 307",
    b"HTTP/1.0 400",
    b"HTTP/0.9 200",
)

GARBAGE: dict[str, bytes] = {
    "HTTP/0.9": b"GET /varz\r\n\r\n",
    "no HTTP at all": b"CONNECT {}\r\nPING\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
    "null bytes": b"GET /varz\0 HTTP/1.1\r\nHost: a\0b\r\n\r\n",
    "bare line feeds": b"GET /varz HTTP/1.1\nHost: a\n\n",
    "a header without colon": b"GET / HTTP/1.1\r\nHost a\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nContent-Length : 5\r\n\r\nabcde",
    "a giant header": b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 20_000 + b"\r\n",
    "a giant path": b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
    "a negative length": b"POST /varz HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    "a huge length": b"POST /varz HTTP/1.1\r\nHost: a\r\nContent-Length: 9"
    + b"9" * 40
    + b"\r\n\r\nx",
    "two lengths": b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "length and chunks": b"POST / HTTP/1.1\r\nContent-Length: 6\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /varz HTTP/1.1\r\n\r\n",
    "an obscure encoding": b"POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n5\r\nabc",
    "a chunk without end": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
    "a chunk of text": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "an unknown method": b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n",
    "another version": b"GET / HTTP/9.9\r\nHost: a\r\n\r\n",
    "an upgrade": b"GET /varz HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a proxy's request": b"GET http://evil.example/varz HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "a tunnel": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\n\r\n",
}
PATHS = (
    *("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "/.%00./varz"),
    *(
        "/varz%00.html",
        "/\\..\\..\\etc\\passwd",
        "//etc/passwd",
        "/varz/../../etc/passwd",
        "/%ff%fe",
    ),
    *("*", "/static/../../natsd.conf", "/;a=b", "/%c0%ae%c0%ae/", "?", "/" + "../" * 500, "/ü"),
)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    for name, seconds in (("PATIENCE_S", 2.0), ("IDLE_S", 0.2), ("SWEEP_S", 0.1)):
        monkeypatch.setattr(f"natsd.monitor.connections.{name}", seconds)
    async with Server(
        host="127.0.0.1", port=-1, http_port=-1, max_control_line=128 << 10
    ) as server:
        yield server
        await serves_clients(server)


async def is_serving(server: Server) -> bool:
    """Return whether monitoring answers; under a flood it may close a connection."""
    return b'{"status":"ok"}' in await exchange(server, CLOSING)


async def serves_clients(server: Server) -> None:
    """Assert that a NATS client gets its message, and that monitoring answers."""
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
        writer.write(b'CONNECT {"verbose":false}\r\nSUB alive 1\r\nPUB alive 2\r\nok\r\nPING\r\n')
        while await reader.readline() != b"MSG alive 1 2\r\n":
            pass
        writer.close()
        while not await is_serving(server):
            pass


async def exchange(server: Server, data: bytes) -> bytes:
    """Send bytes, and return what comes until the server closes."""
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
        answer = b""
        try:
            writer.write(data)
            while part := await reader.read(65536):
                answer += part
        except ConnectionError:
            pass
        writer.close()
        return answer


@pytest.mark.parametrize("name", GARBAGE)
async def test_garbage_is_answered_cleanly_or_closed(server: Server, name: str) -> None:
    answer = await exchange(server, GARBAGE[name])
    assert not answer or answer.startswith(STATUSES) or b" 4" in answer[:12]
    assert len(re.findall(rb"(?m)^HTTP/", answer)) <= 1  # nothing smuggled in was answered
    assert b"Traceback" not in answer


@pytest.mark.parametrize("name", ["null bytes", "a giant header", "two lengths", "a chunk of text"])
async def test_garbage_leaves_no_line_in_the_log(
    server: Server, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A stranger could otherwise fill the disk with the tracebacks of aiohttp."""
    await exchange(server, GARBAGE[name])
    assert caplog.record_tuples == []


async def test_an_error_of_ours_is_logged_with_its_traceback(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("natsd.monitor.endpoints.pieces", None)
    assert b"500 Internal Server Error" in await exchange(
        server, CLOSING.replace(b"healthz", b"varz")
    )
    [record] = caplog.records
    assert record.name.startswith("natsd.")
    assert record.exc_info


@pytest.mark.parametrize("path", PATHS)
async def test_paths_lead_nowhere_else(server: Server, path: str) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    answer = await exchange(server, head.encode())
    assert not answer or answer.split()[1] in (b"200", b"307", b"400", b"404")
    assert b"root:" not in answer
    if answer[9:12] == b"200":
        assert b"natsd" in answer


async def test_a_flood_of_pipelined_requests_is_answered_in_order_or_closed(server: Server) -> None:
    answer = await exchange(server, HEALTHZ * 500 + CLOSING)
    assert answer.count(b"HTTP/1.1 200") == answer.count(b'{"status":"ok"}')


async def test_thousands_of_scrapes_at_once(server: Server) -> None:
    """More scrapes than connections are allowed: some are closed, those answered are right."""

    async def scrape(number: int) -> bytes:
        async with gate:
            path = ("/varz", "/connz?subs=1", "/subsz?subs=1", "/jsz?consumers=1")[number % 4]
            head = f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            return await exchange(server, head.encode())

    gate = asyncio.Semaphore(400)
    answers = await asyncio.gather(*(scrape(number) for number in range(2_000)))
    right = [each for each in answers if each.startswith(b"HTTP/1.1 200")]
    assert all(not each or each in right for each in answers)
    assert len(right) >= CONNECTIONS_MAX


async def test_readers_that_never_read_cost_no_memory(server: Server) -> None:
    """Answers that nobody reads stay unmade, apart from what the sockets hold."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
    subscriptions = b"".join(b"SUB %s.%d %d\r\n" % (b"s" * 200, n, n) for n in range(20_000))
    writer.write(b"CONNECT {}\r\n" + subscriptions + b"PING\r\n")
    while await reader.readline() != b"PONG\r\n":
        pass
    sockets = []
    before = resident_bytes()
    for _ in range(50):  # each answer has 6 MB
        one = socket.create_connection(("127.0.0.1", server.http_port))
        one.sendall(b"GET /connz?subs=detail HTTP/1.1\r\nHost: a\r\n\r\n")
        sockets.append(one)
    for _ in range(20):
        await serves_clients(server)
    assert resident_bytes() - before < 100 << 20
    for one in sockets:
        one.close()
    writer.close()


def resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


NAMES = (
    '<script>alert("1")</script>',
    "</title>&lt;",
    "a\0b\u2028\x1b[31m",
    "\ud800",
    "x" * 60_000,
)


@pytest.mark.parametrize("name", NAMES)
async def test_hostile_names_and_subjects_are_shown_escaped(server: Server, name: str) -> None:
    subject = name.encode("utf-8", "replace").translate(None, b" \t\r\n\0") + b"." + b"\xff\xfe"
    fields = {"verbose": False, "name": name, "lang": name[:99], "user": name[:99]}
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
        login = json.dumps(fields).encode()
        writer.write(b"CONNECT " + login + b"\r\nSUB " + subject + b" q<b> 1\r\nPING\r\n")
        told = b""
        while part := await reader.readline():
            told += part
            if part == b"PONG\r\n" or part.startswith(b"-ERR"):
                break
    for path in ("/connz?subs=detail&auth=1&state=all", "/connz?subs=1", "/subsz?subs=1"):
        head = f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        answer = await exchange(server, head.encode())
        head_bytes, _, body = answer.partition(b"\r\n\r\n")
        assert head_bytes.startswith(b"HTTP/1.1 200")
        assert b"application/json" in head_bytes
        assert not {b"<", b">", b"&", b"\x1b", b"\0"} & {body[i : i + 1] for i in range(len(body))}
        if b"chunked" not in head_bytes:
            json.loads(body)
    writer.close()
