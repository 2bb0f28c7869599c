"""Permissions of a session: what it is told, what is logged, what it gets."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator

import pytest

from natsd import Server
from natsd.auth import Verdict
from natsd.clients import Client
from natsd.clients.connect import ConnectOptions
from natsd.core.routing import PermissionRules
from tests.server.streams import Stream

pytestmark = pytest.mark.natsd_only


def denied(publish: str = "", subscribe: str = "", queue: str = "") -> PermissionRules:
    """Return rules that deny a subject for publishing, one for subscribing, and a queue."""
    return PermissionRules(
        publish_deny=[publish] if publish else [],
        subscribe_deny=([subscribe] if subscribe else []) + ([f"> {queue}"] if queue else []),
    )


class Logins:
    """Gives each client the permissions that the test named for its user."""

    is_required = True
    needs_nonce = False
    needs_credentials = True

    def __init__(self) -> None:
        self.permissions: dict[str, PermissionRules] = {}

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
    logins.permissions["some"] = denied("no.*", "no.*", "closed")
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
        'Subscription Violation - Subject "no.1", SID 2',
        'Subscription Violation - Subject "no.1", Queue: "q", SID 3',
        'Subscription Violation - Subject "yes", Queue: "closed", SID 4',
        'Publish Violation - Subject "no.2"',
    ]
    await stream.close()


async def test_a_violation_is_not_acknowledged(server: Server, logins: Logins) -> None:
    logins.permissions["some"] = denied("no", "no")
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
    logins.permissions["some"] = denied(subscribe="a.secret")
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
    logins.permissions["some"] = denied(subscribe="a.secret")
    some, other = await login(server, "some"), await login(server, "other")
    for stream in (some, other):
        stream.send(b"SUB a.* group 1\r\n")
        await stream.sync()
    other.send(b"PUB a.secret 1\r\nx\r\n" * 20)
    assert await other.sync() == [b"MSG a.secret 1 1\r\n", b"x\r\n"] * 20
    assert await some.sync() == []
    await some.close()
    await other.close()


async def test_many_subjects_are_all_checked(server: Server, logins: Logins) -> None:
    """More subjects than a session remembers, again and again."""
    logins.permissions["some"] = PermissionRules(publish_allow=["yes.*"], publish_deny=["yes.9"])
    stream = await login(server, "some")
    stream.send(b"SUB > 1\r\n")
    names = [f"{word}.{number}" for number in range(200) for word in ("yes", "no")]
    for _ in range(3):
        stream.send(b"".join(f"PUB {name} 0\r\n\r\n".encode() for name in names))
        told = await stream.sync()
        assert told.count(b"\r\n") == 199
        for name in names:
            is_allowed = name.startswith("yes.") and name != "yes.9"
            refusal = f"-ERR 'Permissions Violation for Publish to \"{name}\"'\r\n"
            assert (f"MSG {name} 1 0\r\n".encode() in told) == is_allowed
            assert (refusal.encode() in told) != is_allowed
    await stream.close()


async def test_another_connect_brings_other_permissions(server: Server, logins: Logins) -> None:
    logins.permissions["some"] = denied("a")
    stream = await login(server, "some")
    stream.send(b"PUB a 0\r\n\r\n")
    assert await stream.sync() == [b"-ERR 'Permissions Violation for Publish to \"a\"'\r\n"]
    stream.send(b'CONNECT {"user":"other"}\r\nPUB a 0\r\n\r\n')
    assert await stream.sync() == []
    await stream.close()
