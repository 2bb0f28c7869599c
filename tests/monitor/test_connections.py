"""Connections to the monitoring port that stop sending or reading are bounded.

The bounds are those on number, time and size.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from natsd.clients.subscription_info import SubscriptionInfo
from natsd.monitor import connections, endpoints
from natsd.monitor.json_text import pieces
from natsd.server.log import Line
from tests.monitor.probing import Probe, closed_client, probing
from tests.waiting import Eventually

DEADLINE_S = 30.0
HALF = b"GET /varz HTTP/1.1\r\nHost: x\r\nX-Half: "
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


class Peer:
    """A raw connection to the monitoring port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def is_closed(self) -> bool:
        """Wait until the server closes, discarding what it sends first."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionResetError:
                pass
        return True

    async def healthy(self) -> bool:
        """Request `/healthz` and read the answer."""
        self.writer.write(WHOLE)
        async with asyncio.timeout(DEADLINE_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            return head.startswith(b"HTTP/1.1 200") and bool(await self.reader.read(100))


@asynccontextmanager
async def connected(probe: Probe) -> AsyncIterator[Peer]:
    port = int(probe._url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time for which the server waits for a peer."""
    monkeypatch.setattr(connections, "PATIENCE_S", 0.2)
    monkeypatch.setattr(connections, "SWEEP_S", 0.05)


@pytest.fixture
async def probe() -> AsyncIterator[Probe]:
    async with probing() as probe:
        assert (await probe.ask("/healthz"))[0] == 200
        yield probe


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("sent", [b"", b"G", HALF, WHOLE[:-1], b"GET /" + b"x" * 9000])
async def test_half_a_request_is_not_waited_for(probe: Probe, sent: bytes) -> None:
    async with connected(probe) as peer:
        peer.writer.write(sent)
        assert await peer.is_closed()


@pytest.mark.usefixtures("impatient")
async def test_a_request_that_comes_byte_by_byte_is_not_waited_for(probe: Probe) -> None:
    async with connected(probe) as peer:
        closed = asyncio.create_task(peer.is_closed())
        peer.writer.write(HALF)
        while not closed.done():
            peer.writer.write(b"x")
            await asyncio.sleep(0.01)
        assert closed.result()


@pytest.mark.usefixtures("impatient")
async def test_who_had_an_answer_may_be_silent(probe: Probe) -> None:
    async with connected(probe) as idle, connected(probe) as half:
        assert await idle.healthy()
        half.writer.write(HALF)
        assert await half.is_closed()
        assert await idle.healthy()


async def test_a_request_without_end_is_cut_off(probe: Probe) -> None:
    async with connected(probe) as peer:
        for _ in range(connections.REQUEST_BYTES_MAX // 1000 + 1):
            peer.writer.write(
                b"GET /varz HTTP/1.1\r\n" if _ == 0 else b"X: " + b"x" * 995 + b"\r\n"
            )
        assert await peer.is_closed()


async def test_a_body_without_end_is_cut_off(probe: Probe) -> None:
    async with connected(probe) as peer:
        peer.writer.write(b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n")
        for _ in range(connections.REQUEST_BYTES_MAX // 1000 + 2):
            peer.writer.write(b"x" * 1000)
        assert await peer.is_closed()


async def test_one_connection_too_many_takes_the_place_of_the_one_that_waits_longest(
    monkeypatch: pytest.MonkeyPatch, probe: Probe, eventually: Eventually
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 8)
    many = [connected(probe) for _ in range(20)]
    peers = []
    for each in many:
        peers.append(await each.__aenter__())
        peers[-1].writer.write(HALF)
    for peer in peers[:12]:
        assert await peer.is_closed()
    async with connected(probe) as peer:
        assert await peer.healthy()
    for each in many:
        await each.__aexit__(None, None, None)


@pytest.mark.usefixtures("impatient")
async def test_who_does_not_read_an_answer_is_closed_and_costs_little(
    probe: Probe, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """Of an answer of 60 MB no more is made than the system's buffers take."""
    made = 0

    def counted(answer: Any, *, pretty: bool) -> Iterator[bytes]:
        nonlocal made
        for piece in pieces(answer, pretty=pretty):
            made += len(piece)
            yield piece

    monkeypatch.setattr(endpoints, "pieces", counted)
    subject = "a.long.subject." + "x" * 100
    kept = (SubscriptionInfo(subject, None, "1", 0, 0),) * 10_000
    for cid in range(30):
        probe.server.closed_clients.append(
            closed_client(cid, num_subscriptions=len(kept), kept_subscriptions=kept)
        )
    async with connected(probe) as peer:
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a socket, it can
        peer.writer.write(b"GET /connz?state=closed&subs=detail HTTP/1.1\r\nHost: x\r\n\r\n")
        await eventually(lambda: made > 1 << 20)
        given_up = 0
        while made != given_up:  # the answer has stopped growing
            given_up = made
            await asyncio.sleep(0.3)
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]  # of a socket, it can
        assert await peer.is_closed()
    assert made < 30 << 20
    assert (await probe.ask("/healthz"))[0] == 200


@contextmanager
def logged_lines() -> Iterator[list[str]]:
    """Yield the lines that the daemon's log would have."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Lines()
    handler.setFormatter(Line(logtime=False, utc=False, color=False))
    logging.getLogger("natsd").addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger("natsd").removeHandler(handler)


FORGED: list[Any] = [
    "/healthz?account=x%0a[1]%20[INF]%20Server%20is%20ready",
    "/healthz?account=%0d%1b[2J%07&details=1",
    "/healthz?account=x%E2%80%A8y%C2%85z%7f&details=1",
]


@pytest.mark.parametrize("path", FORGED)
async def test_a_parameter_forges_no_line_of_the_log(probe: Probe, path: str) -> None:
    async with probing(jetstream=True) as probe:
        with logged_lines() as lines:
            assert (await probe.ask(path))[0] == 404
    (line,) = [line for line in lines if "Healthcheck failed" in line]
    assert line.isprintable()


async def test_garbage_is_refused_and_not_logged_raw(
    probe: Probe, capfd: pytest.CaptureFixture[str]
) -> None:
    with logged_lines() as lines:
        async with connected(probe) as peer:
            peer.writer.write(b"\x1b[31mgarbage\x07\r\n\r\n")
            assert await peer.is_closed()
    assert all(line.isprintable() for line in lines)
    assert "\x1b" not in "".join(capfd.readouterr())
