"""A client that does not authenticate in time is told so and closed."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from nats.aio.client import Client
from nats.errors import Error

from tests.clients.barrier import processed
from tests.clients.conftest import Connect, StartServer
from tests.clients.target import Target
from tests.clients.wire import Wire

pytestmark = pytest.mark.served_every_way

AUTH_TIMEOUT_S = 0.2


@pytest.fixture
def impatient_server(shared_server: Callable[..., Target]) -> Target:
    return shared_server(token="s3cr3t", auth_timeout=AUTH_TIMEOUT_S)


@pytest.mark.parametrize("sent", [b"", b"C", b'CONNECT {"auth_token":"s3cr3t"}'])
def test_a_client_must_say_connect_in_time(impatient_server: Target, sent: bytes) -> None:
    started = time.monotonic()
    with Wire(impatient_server.address) as wire:
        wire.send(sent)
        assert wire.read_until_closed() == b"-ERR 'Authentication Timeout'\r\n"
    assert AUTH_TIMEOUT_S * 0.9 <= time.monotonic() - started < AUTH_TIMEOUT_S + 2


def test_the_timeout_ends_with_connect(impatient_server: Target) -> None:
    """A client that has authenticated outlives one that connected later and did not."""
    with Wire(impatient_server.address) as known, Wire(impatient_server.address) as unknown:
        known.send(b'CONNECT {"verbose":false,"auth_token":"s3cr3t"}\r\n')
        known.sync()
        unknown.read_until_closed()
        assert known.sync() == []


def test_without_authentication_there_is_no_timeout(shared_server: Callable[..., Target]) -> None:
    server = shared_server(auth_timeout=AUTH_TIMEOUT_S)
    with Wire(server.address) as wire:
        wire.socket.settimeout(AUTH_TIMEOUT_S * 2)
        with pytest.raises(TimeoutError):
            wire.read_frame()
        assert wire.sync() == []


async def test_token_and_password(start_server: StartServer, connect: Connect) -> None:
    with_token = await start_server(token="s3cr3t")
    client = await connect(with_token, token="s3cr3t")
    await processed(client)

    with_password = await start_server(user="derek", password="pa55")
    client = await connect(with_password, user="derek", password="pa55")
    await processed(client)


async def test_a_wrong_token_is_an_authorization_violation(start_server: StartServer) -> None:
    server = await start_server(token="s3cr3t")
    client = Client()
    with pytest.raises(Error, match=r"(?i)authorization violation"):
        await client.connect(server.url, token="wrong", allow_reconnect=False)
    await client.close()
