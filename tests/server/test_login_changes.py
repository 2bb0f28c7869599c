"""A login that ends or changes while the client is connected: expiry, revocation, new permissions.

The authenticator is on the test's loop, so that the test may change what it answers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable

import pytest

from natsd import Server
from natsd.auth import Verdict
from natsd.auth.verdict import UserLimits, refused
from natsd.clients import Client
from natsd.clients.connect import ConnectOptions
from natsd.core.reasons import ClosedReason
from natsd.core.routing import PermissionRules
from tests.server.streams import Stream
from tests.waiting import eventually_within

DAY_NS = 86_400 * 10**9


class Logins:
    """Gives each client the verdict that the test chose, now or later."""

    is_required = True
    needs_nonce = False
    needs_credentials = True

    def __init__(self) -> None:
        self.verdict = Verdict("$G", user="derek", label="user:derek")
        self.is_slow = False

    def authenticate(self, client: Client, connect: ConnectOptions) -> Verdict | Awaitable[Verdict]:
        return self._later() if self.is_slow else self.verdict

    async def _later(self) -> Verdict:
        return self.verdict


@pytest.fixture
def logins() -> Logins:
    return Logins()


@pytest.fixture
async def server(logins: Logins) -> AsyncIterator[Server]:
    async with Server(host="127.0.0.1", port=-1, authenticator=logins) as server:
        yield server


async def connected(server: Server, subscriptions: bytes = b"") -> tuple[Stream, Client]:
    stream = await Stream.open(server.client_port)
    stream.send(subscriptions)
    assert await stream.sync() == []
    return stream, list(server.clients.values())[-1]


def closed_reasons(server: Server) -> list[str]:
    return [closed.reason for closed in server.closed_clients]


async def test_a_login_expires(server: Server, logins: Logins) -> None:
    logins.verdict = Verdict("$G", expires_ns=time.time_ns() + 50_000_000)
    stream = await Stream.open(server.client_port)
    assert b"-ERR 'User Authentication Expired'\r\n" in await stream.read_until_closed()
    assert closed_reasons(server) == ["Authentication Expired"]
    await stream.close()


async def test_another_connect_brings_another_expiry(server: Server, logins: Logins) -> None:
    logins.verdict = Verdict("$G", expires_ns=time.time_ns() + DAY_NS)
    stream, client = await connected(server)
    logins.verdict = Verdict("$G")
    stream.send(b"CONNECT {}\r\n")
    await stream.sync()
    client.check_login()
    assert await stream.sync() == []
    await stream.close()


@pytest.mark.parametrize(
    ("end", "text", "reason"),
    [
        ("credentials_revoked", "User Authentication Revoked", "Credentials Revoked"),
        ("account_expired", "Account Authentication Expired", "Authentication Expired"),
        ("authentication_expired", "User Authentication Expired", "Authentication Expired"),
    ],
)
async def test_a_login_is_ended(server: Server, end: str, text: str, reason: str) -> None:
    stream, client = await connected(server)
    getattr(client, end)()
    assert await stream.read_until_closed() == f"-ERR '{text}'\r\n".encode()
    await eventually_within(lambda: closed_reasons(server) == [reason])
    await stream.close()


@pytest.mark.parametrize("is_slow", [False, True])
async def test_a_client_that_lost_its_right_is_closed(
    server: Server, logins: Logins, is_slow: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stream, client = await connected(server)
    stream.send(b'CONNECT {"user":"derek","pass":"s3cr3t"}\r\n')
    await stream.sync()
    logins.verdict = refused("proxy is not trusted", ClosedReason.PROXY_NOT_TRUSTED)
    logins.is_slow = is_slow
    with caplog.at_level(logging.DEBUG, "natsd.client"):
        client.check_login()
        assert await stream.read_until_closed() == b"-ERR 'Authorization Violation'\r\n"
    await eventually_within(lambda: closed_reasons(server) == ["Proxy Not Trusted"])
    lines = [text.rpartition(" - ")[2] for text in caplog.messages]
    assert "proxy is not trusted" in lines
    assert any(text.endswith('authentication error - User "derek"') for text in caplog.messages)
    assert "s3cr3t" not in caplog.text
    await stream.close()


@pytest.mark.parametrize("is_slow", [False, True])
async def test_new_permissions_end_forbidden_subscriptions(
    server: Server, logins: Logins, is_slow: bool
) -> None:
    stream, client = await connected(server, b"SUB a 1\r\nSUB b 2\r\nSUB b q 3\r\nSUB > 4\r\n")
    logins.verdict = Verdict("$G", PermissionRules(publish_deny=["c"], subscribe_deny=["b"]))
    logins.is_slow = is_slow
    client.check_login()
    told = []
    while len(told) < 2:
        told += await stream.sync()
    assert told == [
        b'-ERR \'Permissions Violation for Subscription to "b" (sid "2")\'\r\n',
        b'-ERR \'Permissions Violation for Subscription to "b" using queue "q" (sid "3")\'\r\n',
    ]
    stream.send(b"PUB b 0\r\n\r\nPUB c 0\r\n\r\nPUB a 0\r\n\r\n")
    answer = await stream.sync()
    assert answer[0] == b"-ERR 'Permissions Violation for Publish to \"c\"'\r\n"
    assert sorted(answer[1:]) == [*[b"\r\n"] * 2, b"MSG a 1 0\r\n", b"MSG a 4 0\r\n"]
    logins.verdict = Verdict("$G")
    client.check_login()
    await eventually_within(lambda: client.permission_rules is None)
    stream.send(b"SUB b 2\r\nPUB b 0\r\n\r\n")
    assert sorted(await stream.sync()) == [*[b"\r\n"] * 2, b"MSG b 2 0\r\n", b"MSG b 4 0\r\n"]
    await stream.close()


async def test_a_user_of_another_account_now_is_closed(server: Server, logins: Logins) -> None:
    stream, client = await connected(server)
    logins.verdict = Verdict("$SYS")
    client.check_login()
    assert await stream.read_until_closed() == b"-ERR 'Authorization Violation'\r\n"
    await stream.close()


async def test_lower_limits_close_a_connection_with_more_subscriptions(
    server: Server, logins: Logins
) -> None:
    stream, client = await connected(server, b"SUB a 1\r\nSUB b 2\r\n")
    logins.verdict = Verdict("$G", limits=UserLimits(subscriptions=2))
    client.check_login()
    stream.send(b"SUB c 3\r\n")
    assert await stream.sync() == [b"-ERR 'maximum subscriptions exceeded'\r\n"]
    logins.verdict = Verdict("$G", limits=UserLimits(subscriptions=1))
    client.check_login()
    assert await stream.read_until_closed() == b"-ERR 'maximum subscriptions exceeded'\r\n"
    await eventually_within(lambda: closed_reasons(server) == ["Maximum Subscriptions Exceeded"])
    await stream.close()


async def test_the_lowest_payload_limit_holds(server: Server, logins: Logins) -> None:
    stream, client = await connected(server)
    for limit in (100, 1 << 30, -1):
        logins.verdict = Verdict("$G", limits=UserLimits(payload=limit))
        client.check_login()
        assert client.payload_max == (100 if limit == 100 else 1 << 20)
    await stream.close()
