"""Permissions of a session: what it is told, what is logged, and how often they are asked."""

from __future__ import annotations

import fnmatch
import logging
import re
from collections.abc import AsyncIterator

import pytest

from natsd import Server
from natsd.auth import Verdict
from natsd.clients import Client
from natsd.clients.connect import ConnectOptions
from tests.server.streams import Stream

pytestmark = pytest.mark.natsd_only


class Denied:
    """Permissions that deny subjects by pattern, and note what they are asked."""

    def __init__(self, publish: str = "", subscribe: str = "", queue: str = "") -> None:
        self.publish, self.subscribe, self.queue = publish, subscribe, queue
        self.asked: list[str] = []

    def may_publish(self, subject: str) -> bool:
        self.asked.append(f"publish {subject}")
        return not fnmatch.fnmatchcase(subject, self.publish)

    def may_subscribe(self, subject: str, queue: str | None) -> bool:
        self.asked.append(f"subscribe {subject}{f' {queue}' if queue else ''}")
        return not fnmatch.fnmatchcase(subject, self.subscribe) and queue != (self.queue or "none")


class Logins:
    """Gives each client the permissions that the test named for its user."""

    is_required = True
    needs_nonce = False

    def __init__(self) -> None:
        self.permissions: dict[str, Denied] = {}

    def authenticate(self, client: Client, connect: ConnectOptions) -> Verdict:
        return Verdict("$G", self.permissions.get(connect.user))


@pytest.fixture
def logins() -> Logins:
    return Logins()


@pytest.fixture
async def server(logins: Logins) -> AsyncIterator[Server]:
    async with Server(host="127.0.0.1", port=-1, authenticator=logins) as server:
        yield server


async def login(server: Server, user: str) -> Stream:
    stream = await Stream.open(server.client_port)
    stream.send(f'CONNECT {{"verbose":false,"user":"{user}"}}\r\n'.encode())
    await stream.sync()
    return stream


async def test_violations(server: Server, logins: Logins, caplog: pytest.LogCaptureFixture) -> None:
    """The texts are those of nats-server; the connection stays open."""
    logins.permissions["some"] = Denied("no.*", "no.*", "closed")
    stream = await login(server, "some")
    stream.send(
        b"SUB yes 1\r\nSUB no.1 2\r\nSUB no.1 q 3\r\nSUB yes closed 4\r\n"
        b"PUB no.2 1\r\nx\r\nPUB yes 2\r\nhi\r\n"
    )
    with caplog.at_level(logging.ERROR, "natsd.client"):
        assert await stream.sync() == [
            b"-ERR 'Permissions Violation for Subscription to \"no.1\"'\r\n",
            b'-ERR \'Permissions Violation for Subscription to "no.1" using queue "q"\'\r\n',
            b'-ERR \'Permissions Violation for Subscription to "yes" using queue "closed"\'\r\n',
            b"-ERR 'Permissions Violation for Publish to \"no.2\"'\r\n",
            b"MSG yes 1 2\r\n",
            b"hi\r\n",
        ]
    violations = [re.sub(r".*? - (?=\w+ Violation)", "", text) for text in caplog.messages]
    assert violations == [
        'Subscription Violation - Subject "no.1", SID "2"',
        'Subscription Violation - Subject "no.1", Queue: "q", SID "3"',
        'Subscription Violation - Subject "yes", Queue: "closed", SID "4"',
        'Publish Violation - Subject "no.2"',
    ]
    await stream.close()


async def test_a_violation_is_not_acknowledged(server: Server, logins: Logins) -> None:
    logins.permissions["some"] = Denied("no", "no")
    stream = await Stream.open(server.client_port)
    stream.send(b'CONNECT {"verbose":true,"user":"some"}\r\nPUB no 0\r\n\r\nSUB no 1\r\n')
    stream.send(b"PUB yes 0\r\n\r\n")
    assert await stream.sync() == [
        b"+OK\r\n",
        b"-ERR 'Permissions Violation for Publish to \"no\"'\r\n",
        b"-ERR 'Permissions Violation for Subscription to \"no\"'\r\n",
        b"+OK\r\n",
    ]
    await stream.close()


async def test_a_wildcard_subscription_gets_no_message_that_is_denied(
    server: Server, logins: Logins
) -> None:
    logins.permissions["some"] = Denied(subscribe="a.secret")
    some, other = await login(server, "some"), await login(server, "other")
    some.send(b"SUB a.* 1\r\n")
    other.send(b"SUB a.* 9\r\n")
    await some.sync()
    await other.sync()
    other.send(b"PUB a.secret 1\r\nx\r\nPUB a.open 1\r\ny\r\n")
    assert await other.sync() == [
        b"MSG a.secret 9 1\r\n",
        b"x\r\n",
        b"MSG a.open 9 1\r\n",
        b"y\r\n",
    ]
    assert await some.sync() == [b"MSG a.open 1 1\r\n", b"y\r\n"]
    await some.close()
    await other.close()


async def test_a_denied_member_of_a_queue_group_leaves_the_message_to_another(
    server: Server, logins: Logins
) -> None:
    logins.permissions["some"] = Denied(subscribe="a.secret")
    some, other = await login(server, "some"), await login(server, "other")
    for stream in (some, other):
        stream.send(b"SUB a.* group 1\r\n")
        await stream.sync()
    other.send(b"PUB a.secret 1\r\nx\r\n" * 20)
    assert await other.sync() == [b"MSG a.secret 1 1\r\n", b"x\r\n"] * 20
    assert await some.sync() == []
    await some.close()
    await other.close()


async def test_verdicts_are_asked_once_and_the_cache_is_bounded(
    server: Server, logins: Logins
) -> None:
    asked = logins.permissions["some"] = Denied("no", "no")
    stream = await login(server, "some")
    stream.send(b"SUB a 1\r\n" + b"PUB a 1\r\nx\r\nPUB b 1\r\nx\r\nPUB no 1\r\nx\r\n" * 10)
    assert len(await stream.sync()) == 30
    assert asked.asked == ["subscribe a", "publish a", "publish b", "publish no"]
    asked.asked.clear()
    stream.send(
        b"".join(b"PUB %d 0\r\n\r\n" % number for number in range(128)) + b"PUB a 0\r\n\r\n"
    )
    await stream.sync()
    assert len(asked.asked) == 129  # the oldest verdicts have made room
    stream.send(b"PUB 127 0\r\n\r\n")
    await stream.sync()
    assert len(asked.asked) == 129
    await stream.close()


async def test_another_connect_brings_other_permissions(server: Server, logins: Logins) -> None:
    logins.permissions["some"] = Denied("a")
    stream = await login(server, "some")
    stream.send(b"PUB a 0\r\n\r\n")
    assert await stream.sync() == [b"-ERR 'Permissions Violation for Publish to \"a\"'\r\n"]
    stream.send(b'CONNECT {"user":"other"}\r\nPUB a 0\r\n\r\n')
    assert await stream.sync() == []
    await stream.close()
