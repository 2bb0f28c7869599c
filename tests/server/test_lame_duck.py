"""Lame duck mode: which clients are told, in which order, and when it is over.

It corresponds to nats-server's `Server.lameDuckMode`.
"""

import asyncio
from pathlib import Path
from typing import Any

import nats
import pytest

from natsd import Server
from natsd.config import OptionsError, make_options
from natsd.server.lame_duck import Spread
from tests.clients.wire import Closed, Wire, parse_info
from tests.waiting import Eventually

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"protocol":1}\r\n'
QUIET_OLD = b'CONNECT {"verbose":false,"pedantic":false,"protocol":0}\r\n'


async def open_wire(server: Server, connect: bytes) -> Wire:
    """Return a client that has sent CONNECT and received its first PONG."""

    def work() -> Wire:
        wire = Wire(("127.0.0.1", server.client_port))
        wire.send(connect)
        wire.sync()
        return wire

    return await asyncio.to_thread(work)


def lame_duck_info(wire: Wire) -> dict[str, Any]:
    """Return the INFO with `ldm`; another INFO may precede it."""
    while not (info := parse_info(wire.read_frame())).get("ldm"):
        pass
    assert info["ldm"] is True
    return info


async def test_clients_are_told_then_closed_and_the_server_stops(tmp_path: Path) -> None:
    settings = {"lame_duck_duration": "1s", "lame_duck_grace_period": "300ms"}
    server = Server(host="127.0.0.1", port=-1, jetstream=True, store_dir=tmp_path, **settings)
    await server.start()
    port = server.client_port
    wires = [await open_wire(server, QUIET) for _ in range(3)]
    old = await open_wire(server, QUIET_OLD)
    server.enter_lame_duck()
    server.enter_lame_duck()  # the second call changes nothing
    assert server.is_lame_duck
    assert not server.is_ready
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    for wire in wires:
        info = await asyncio.to_thread(lame_duck_info, wire)
        assert info["server_id"] == server.id
        assert "connect_info" not in info
    assert server.jetstream is None
    wires[0].send(b"PUB foo 0\r\n\r\n")
    assert (
        await asyncio.to_thread(wires[0].sync) == []
    )  # clients are served during the grace period
    for wire in [*wires, old]:
        assert b"ldm" not in await asyncio.to_thread(wire.read_until_closed)
        wire.close()
    await server.wait_closed()
    assert [closed.reason for closed in server.closed_clients] == ["Server Shutdown"] * 4
    assert not server.is_lame_duck
    await server.start()
    await server.stop()


async def test_a_client_library_moves_on(eventually: Eventually) -> None:
    """nats-py is told, and reconnects to the other server when the first one has stopped."""
    async with Server(host="127.0.0.1", port=-1) as other:
        server = Server(
            host="127.0.0.1", port=-1, lame_duck_duration="1s", lame_duck_grace_period="10ms"
        )
        await server.start()
        told = asyncio.Event()

        async def sent_away() -> None:
            told.set()

        client = await nats.connect(
            [server.client_url, other.client_url],
            dont_randomize=True,
            lame_duck_mode_cb=sent_away,
            reconnect_time_wait=0.01,
        )
        server.enter_lame_duck()
        async with asyncio.timeout(20):
            await told.wait()
            await server.wait_closed()
        await eventually(lambda: client.is_connected and len(other.clients) == 1)
        await client.close()


async def test_without_clients_it_stops_at_once() -> None:
    server = Server(host="127.0.0.1", port=-1)
    await server.start()
    server.enter_lame_duck()
    async with asyncio.timeout(20):
        await server.wait_closed()
    server.enter_lame_duck()  # does nothing on a stopped server
    assert not server.is_lame_duck


async def test_a_stop_does_not_wait_for_the_lame_duck(eventually: Eventually) -> None:
    server = Server(host="127.0.0.1", port=-1)
    await server.start()
    wire = await open_wire(server, QUIET)
    server.enter_lame_duck()
    await asyncio.to_thread(lame_duck_info, wire)
    async with asyncio.timeout(20):
        await server.stop()
    with pytest.raises(Closed):
        await asyncio.to_thread(wire.read_frame)
    await eventually(lambda: not [t for t in asyncio.all_tasks() if "natsd" in t.get_name()])
    wire.close()


async def test_a_stop_waits_until_jetstream_has_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JetStream is closed once, and completely."""
    server = Server(host="127.0.0.1", port=-1, jetstream=True, store_dir=tmp_path)
    await server.start()
    assert server.jetstream is not None
    goes_on, closed, close = asyncio.Event(), [], server.jetstream.stop

    async def slowly() -> None:
        await goes_on.wait()
        await close()
        closed.append(True)

    monkeypatch.setattr(server.jetstream, "stop", slowly)
    server.enter_lame_duck()
    await asyncio.sleep(0)
    stopping = asyncio.create_task(server.stop())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not stopping.done()
    goes_on.set()
    async with asyncio.timeout(20):
        await stopping
    assert closed == [True]
    async with Server(host="127.0.0.1", port=-1, jetstream=True, store_dir=tmp_path):
        pass  # the directory is free


@pytest.mark.parametrize(
    ("clients", "spread_s", "expected"),
    [
        (0, 110.0, Spread(1, 1.0)),
        (10, 110.0, Spread(1, 1.0)),
        (1000, 100.0, Spread(1, 0.1)),
        (65536, 110.0, Spread(1, 110 / 65536)),
        (65536, 10.0, Spread(7, 0.001)),
    ],
)
def test_clients_are_spread_over_the_time(clients: int, spread_s: float, expected: Spread) -> None:
    spread = Spread.of(clients, spread_s)
    assert spread == expected
    assert (clients / spread.batch) * spread.pause_s <= spread_s + spread.pause_s
    assert spread.pause_s / 2 <= spread.next_pause_s() <= spread.pause_s


def test_the_grace_period_is_shorter_than_the_whole() -> None:
    with pytest.raises(OptionsError) as caught:
        make_options(lame_duck_duration="10s", lame_duck_grace_period="10s")
    assert str(caught.value) == (
        "lame duck grace period (10s) should be strictly lower than lame duck duration (10s)"
    )
