"""INFO: the description of itself that the server sends when a client connects."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.clients.conftest import AnyTarget, StartThreadedServer
from tests.clients.target import Target
from tests.clients.wire import Wire, parse_info

# The fields that nats-server 2.14 sends without TLS, cluster, JetStream and so on, in its order.
FIELDS = [
    "server_id",
    "server_name",
    "version",
    "proto",
    "git_commit",
    "go",
    "host",
    "port",
    "headers",
    "auth_required",
    "max_payload",
    "client_id",
    "client_ip",
    "connect_info",
    "remote_account",
    "api_lvl",
    "xkey",
]
# Fields that a server may leave out, depending on its build and its features.
OPTIONAL = {"git_commit", "go", "api_lvl", "xkey"}


@pytest.fixture
def server(shared_server: Callable[..., Target]) -> Target:
    return shared_server()


def test_the_line(server: AnyTarget) -> None:
    """INFO is one line of compact JSON, then a space and CRLF."""
    with Wire(server.address) as wire:
        assert re.fullmatch(rb'INFO \{"server_id":".*[^ ]\} \r\n', wire.info_line)
        assert b'": ' not in wire.info_line
        assert b", " not in wire.info_line


def test_the_fields(server: AnyTarget) -> None:
    with Wire(server.address) as wire:
        info = wire.info
    assert re.fullmatch("N[A-Z2-7]{55}", info["server_id"])
    assert info["server_name"] == info["server_id"]
    assert info["version"] == "2.14.5"
    assert info["proto"] == 1
    assert (info["host"], info["port"]) == server.address
    assert info["headers"] is True
    assert info["max_payload"] == 1024 * 1024
    assert info["client_ip"] == "127.0.0.1"
    assert "auth_required" not in info


def test_the_order_of_fields(server: AnyTarget) -> None:
    """The order of fields is fixed: clients ignore it, people who compare lines do not."""
    with Wire(server.address) as wire:
        known = [name for name in FIELDS if name in wire.info]
        sent = [name for name in wire.info if name in FIELDS]
        assert sent == known
        required = set(FIELDS) - OPTIONAL - {"auth_required", "connect_info", "remote_account"}
        assert required <= set(wire.info)


def test_every_connection_has_its_own_id(server: AnyTarget) -> None:
    with Wire(server.address) as first, Wire(server.address) as second:
        assert first.info["client_id"] < second.info["client_id"]
        assert first.info["server_id"] == second.info["server_id"]


def test_connect_info_repeats_what_was_said(server: AnyTarget) -> None:
    """After the first PING the same INFO follows, with the account that the client is in."""
    with Wire(server.address) as wire:
        wire.send(b'CONNECT {"verbose":false,"protocol":1}\r\n')
        assert wire.sync() == []
        (line,) = wire.sync()
        said, repeated = wire.info, parse_info(line)
    assert repeated == {**said, "connect_info": True, "remote_account": "$G"}
    assert [name for name in repeated if name in FIELDS] == [
        name for name in FIELDS if name in repeated
    ]


def test_options_show(start_threaded_server: StartThreadedServer) -> None:
    server = start_threaded_server(
        server_name="alpha",
        client_advertise="nats.example.org:4242",
        max_payload=4096,
        no_header_support=True,
        token="s3cr3t",
    )
    with Wire(server.address) as wire:
        info = wire.info
    assert info["server_name"] == "alpha"
    assert (info["host"], info["port"]) == ("nats.example.org", 4242)
    assert info["max_payload"] == 4096
    assert info["headers"] is False
    assert info["auth_required"] is True
