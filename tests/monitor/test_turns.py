"""Turns: how long work makes way for clients and for the event loop."""

import asyncio
import socket
import time

import pytest

from natsd.core.network import has_poller
from natsd.core.steps import Steps
from natsd.monitor import turns
from natsd.monitor.turns import Turns
from tests.monitor.probing import probing
from tests.waiting import Eventually


def busy_steps(count: int) -> Steps[str]:
    """Take longer than the time between two looks in each of `count` steps."""
    for _ in range(count):
        until_ns = time.monotonic_ns() + turns.LOOK_NS
        while time.monotonic_ns() < until_ns:
            pass
        yield
    return "made"


async def rounds_of_the_loop(counted: list[int]) -> None:
    while True:
        counted[0] += 1
        await asyncio.sleep(0)


async def test_clients_are_served_between_the_steps_of_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "TURN_NS", 60_000_000_000)
    looks = []

    def nobody_waits() -> bool:
        looks.append(None)
        return False

    assert await Turns(nobody_waits).run(busy_steps(5)) == "made"
    assert len(looks) >= 4


async def test_a_turn_ends_when_a_client_was_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_NS", 60_000_000_000)
    rounds = [0]
    counting = asyncio.create_task(rounds_of_the_loop(rounds))
    assert await Turns(lambda: True).run(busy_steps(5)) == "made"
    assert rounds[0] >= 4
    counting.cancel()


async def test_a_turn_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_NS", 0)
    rounds = [0]
    counting = asyncio.create_task(rounds_of_the_loop(rounds))
    assert await Turns().run(busy_steps(5)) == "made"
    assert rounds[0] >= 4
    counting.cancel()


async def test_the_exception_of_a_step_is_raised() -> None:
    def failing() -> Steps[None]:
        yield
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Turns().run(failing())


@pytest.mark.skipif(not has_poller(), reason="without a poller clients are served by the loop only")
async def test_a_client_that_waits_is_served_without_the_loop(eventually: Eventually) -> None:
    """No `await` is between the client's PING and the server's PONG."""
    async with probing() as probe:
        reactor = probe.server.reactor
        with socket.create_connection(("127.0.0.1", probe.server.client_port)) as client:
            client.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
            await eventually(lambda: len(probe.server.clients) == 1)
            client.settimeout(0.01)
            received = b""
            deadline_s = time.monotonic() + 10
            while not received.endswith(b"PONG\r\n") and time.monotonic() < deadline_s:
                reactor.serve_waiting()
                try:
                    received += client.recv(1 << 16)
                except TimeoutError:
                    continue
            assert received.endswith(b"PONG\r\n")
            assert not reactor.serve_waiting()
