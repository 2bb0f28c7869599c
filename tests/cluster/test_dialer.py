"""Attempts to connect: how often, to which addresses, and what is logged."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from natsd.cluster import dialer
from natsd.cluster.dialer import Dial, Dialer
from natsd.cluster.targets import Target
from tests.waiting import Eventually

pytestmark = pytest.mark.both_loops


@dataclass
class FakeSettings:
    retries: int = 0
    has_backoff: bool = False
    connect_reports: int = 3600
    reconnect_reports: int = 1
    own_addresses: Collection[tuple[str, int]] = ()
    wanted: Callable[[Dial], bool] = field(default=lambda _: True)

    def is_wanted(self, dial: Dial) -> bool:
        return self.wanted(dial)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("PAUSE_S", "JITTER_S"):
        monkeypatch.setattr(dialer, name, 0.001)
    caplog.set_level(logging.DEBUG, "natsd")


@asynccontextmanager
async def dialing(settings: FakeSettings) -> AsyncIterator[tuple[Dialer, list[Dial]]]:
    """Run a dialer; its connections are closed at once."""
    connected: list[Dial] = []

    def note(dial: Dial, connection: socket.socket) -> None:
        connected.append(dial)
        connection.close()

    found = Dialer(asyncio.get_running_loop(), settings, note)
    try:
        yield found, connected
    finally:
        await found.close()


def unused_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def attempts(caplog: pytest.LogCaptureFixture, level: int = logging.DEBUG) -> int:
    return sum(
        "Error trying to connect to route" in each.message and each.levelno >= level
        for each in caplog.records
    )


async def test_a_server_that_another_one_told_of_is_tried_once(
    caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    async with dialing(FakeSettings()) as (found, _):
        found.dial(Dial(Target("127.0.0.1", unused_port())))
        await eventually(lambda: not found._tasks)
    assert attempts(caplog) == 1
    assert "(attempt 1): dial tcp 127.0.0.1:" in caplog.text
    assert "connect: connection refused" in caplog.text


async def test_it_is_tried_as_often_as_the_settings_say(
    caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    async with dialing(FakeSettings(retries=4)) as (found, _):
        found.dial(Dial(Target("127.0.0.1", unused_port())))
        await eventually(lambda: not found._tasks)
    assert attempts(caplog) == 5


async def test_a_configured_server_is_tried_until_it_is_there(
    caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    port = unused_port()
    dial = Dial(Target("127.0.0.1", port, is_configured=True))
    async with dialing(FakeSettings(connect_reports=5)) as (found, connected):
        found.dial(dial)
        await eventually(lambda: attempts(caplog) > 10)
        assert attempts(caplog, logging.ERROR) == 1 + attempts(caplog) // 5
        async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port):
            await eventually(lambda: connected)
    assert connected == [dial]


async def test_a_lost_server_is_reported_more_often(
    caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    dial = Dial(Target("127.0.0.1", unused_port(), is_configured=True), is_first=False)
    async with dialing(FakeSettings()) as (found, _):
        found.dial(dial, after_loss=True)
        await eventually(lambda: attempts(caplog, logging.ERROR) > 3)


async def test_attempts_end_when_the_server_is_not_wanted_any_more(eventually: Eventually) -> None:
    settings = FakeSettings()
    async with dialing(settings) as (found, connected):
        found.dial(Dial(Target("127.0.0.1", unused_port(), is_configured=True)))
        settings.wanted = lambda _: False
        await eventually(lambda: not found._tasks)
        assert not connected


async def test_the_same_news_is_followed_once() -> None:
    async with dialing(FakeSettings(retries=10**6)) as (found, _):
        for _ in range(3):
            found.dial(Dial(Target("127.0.0.1", 1)))
            found.dial(Dial(Target("127.0.0.1", 1), "$SYS"))
        assert len(found._tasks) == 2


async def test_a_connection_that_ends_at_once_is_dialed_again(eventually: Eventually) -> None:
    """It may end in the turn in which it was made."""
    connected: list[Dial] = []

    def ends(dial: Dial, connection: socket.socket) -> None:
        connected.append(dial)
        connection.close()
        if len(connected) < 3:
            found.dial(dial, after_loss=True)

    found = Dialer(asyncio.get_running_loop(), FakeSettings(), ends)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        found.dial(Dial(Target(*server.sockets[0].getsockname(), is_configured=True)))
        await eventually(lambda: len(connected) == 3)
    await found.close()


async def test_our_own_addresses_are_left_out(eventually: Eventually) -> None:
    own = [(ip, 1) for ip in ("127.0.0.1", "::1")]
    async with dialing(FakeSettings(own_addresses=own)) as (found, connected):
        found.dial(Dial(Target("localhost", 1, is_configured=True)))
        await eventually(lambda: not found._tasks)
        assert not connected


async def test_a_name_that_is_not_known_is_an_error_like_others(
    caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    async with dialing(FakeSettings()) as (found, _):
        found.dial(Dial(Target("no.such.host.invalid", 1)))
        await eventually(lambda: not found._tasks)
    assert 'lookup for host "no.such.host.invalid"' in caplog.text
