"""The limit `max_connections`."""

from __future__ import annotations

from tests.clients.conftest import StartThreadedServer
from tests.clients.wire import Wire


def test_one_connection_too_many(start_threaded_server: StartThreadedServer) -> None:
    """The third connection gets INFO and the reason, and is closed; the others do not notice."""
    server = start_threaded_server(max_connections=2)
    with Wire(server.address) as first, Wire(server.address) as second:
        first.sync()
        second.sync()
        with Wire(server.address) as third:
            assert third.info["client_id"] > second.info["client_id"]
            assert third.read_until_closed() == b"-ERR 'maximum connections exceeded'\r\n"
        assert first.sync() == second.sync() == []


def test_a_place_that_is_left_can_be_taken(start_threaded_server: StartThreadedServer) -> None:
    server = start_threaded_server(max_connections=1)
    for _ in range(20):
        with Wire(server.address) as wire:
            assert wire.sync() == []
            wire.half_close()
            assert wire.read_until_closed() == b""


def test_zero_refuses_everyone(start_threaded_server: StartThreadedServer) -> None:
    server = start_threaded_server(max_connections=0)
    with Wire(server.address) as wire:
        assert wire.read_until_closed() == b"-ERR 'maximum connections exceeded'\r\n"
