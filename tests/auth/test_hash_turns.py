"""Slots that addresses get in turn."""

from __future__ import annotations

import asyncio

import pytest

from natsd.auth import hash_turns
from natsd.auth.hash_turns import HashTurns, network_of


class Line:
    """Clients that ask for a turn, and the order in which they got one."""

    def __init__(self, slots: int = 1) -> None:
        self.turns = HashTurns(slots)
        self.served: list[str] = []
        self.refused: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, *clients: str) -> None:
        """Have clients ask, each named `<address> <number>`, and wait until all have."""
        for client in clients:
            self.tasks[client] = asyncio.ensure_future(self._wait(client))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _wait(self, client: str) -> None:
        is_served = await self.turns.acquire(client.split()[0])
        (self.served if is_served else self.refused).append(client)

    async def serve(self, count: int) -> None:
        """End the work of `count` slots, one after the other."""
        for _ in range(count):
            self.turns.release()
            await asyncio.sleep(0)
            await asyncio.sleep(0)


async def test_a_flood_delays_another_address_by_one_turn() -> None:
    line = Line()
    await line.ask(*(f"a {n}" for n in range(5)), "b 0", "b 1", "c 0")
    await line.serve(7)
    assert line.served == ["a 0", "a 1", "b 0", "c 0", "a 2", "b 1", "a 3", "a 4"]
    assert not line.refused


async def test_free_slots_are_taken_at_once() -> None:
    line = Line(slots=2)
    await line.ask("a 0", "a 1", "a 2")
    assert line.served == ["a 0", "a 1"]
    await line.serve(3)
    await line.ask("b 0", "b 1", "b 2")
    assert line.served == ["a 0", "a 1", "a 2", "b 0", "b 1"]


async def test_too_many_of_one_address_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_turns, "WAITING_OF_ADDRESS_MAX", 2)
    line = Line()
    await line.ask("a 0", "a 1", "a 2", "a 3", "b 0")
    assert line.refused == ["a 3"]
    await line.serve(3)
    assert line.served == ["a 0", "a 1", "b 0", "a 2"]


async def test_too_many_in_all_refuse_the_newest_of_the_greediest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hash_turns, "WAITING_MAX", 3)
    line = Line()
    await line.ask("a 0", "a 1", "a 2", "a 3", "b 0", "c 0")
    assert line.refused == ["a 3", "a 2"]
    await line.ask("d 0", "b 1")
    assert line.refused == ["a 3", "a 2", "d 0", "b 1"]
    await line.serve(3)
    assert line.served == ["a 0", "a 1", "b 0", "c 0"]


async def test_a_client_that_gives_up_takes_no_turn() -> None:
    line = Line()
    await line.ask("a 0", "a 1", "a 2", "b 0")
    line.tasks["a 1"].cancel()
    await asyncio.sleep(0)
    line.tasks["b 0"].cancel()  # it has not been removed when the slot is free
    await line.serve(1)
    assert line.served == ["a 0", "a 2"]
    await line.serve(1)
    await line.ask("c 0")
    assert line.served[-1] == "c 0"


async def test_a_client_that_gives_up_with_its_turn_passes_it_on() -> None:
    line = Line()
    await line.ask("a 0", "a 1", "b 0")
    line.turns.release()
    line.tasks["a 1"].cancel()
    await asyncio.gather(*line.tasks.values(), return_exceptions=True)
    assert line.served == ["a 0", "b 0"]


@pytest.mark.parametrize(
    ("ip", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("", ""),
    ],
)
def test_addresses_of_one_site(ip: str, network: str) -> None:
    assert network_of(ip) == network
