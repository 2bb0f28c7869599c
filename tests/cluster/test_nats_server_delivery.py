"""Two natsd and the nats-server on PATH as one cluster: they deliver as three natsd do."""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.mesh import cluster_of, member
from tests.cluster.raw_client import RawClient, join_port
from tests.cluster.test_nats_server import GO_SERVER, go_server
from tests.waiting import eventually_within

pytestmark = pytest.mark.skipif(GO_SERVER is None, reason="there is no nats-server on PATH")

USERS = """
accounts {
  A {
    users: [{user: a, password: p}]
    exports: [{stream: "news.>"}, {service: help}]
  }
  B {
    users: [{user: b, password: p}]
    imports: [
      {stream: {account: A, subject: "news.>"}, prefix: from}
      {service: {account: A, subject: help}}
    ]
  }
}
"""
ACCOUNTS: dict[str, Any] = {
    "A": {
        "users": [{"user": "a", "password": "p"}],
        "exports": [{"stream": "news.>"}, {"service": "help"}],
    },
    "B": {
        "users": [{"user": "b", "password": "p"}],
        "imports": [
            {"stream": {"account": "A", "subject": "news.>"}, "prefix": "from"},
            {"service": {"account": "A", "subject": "help"}},
        ],
    },
}
PROBE_S = 0.02
LARGE_BYTES = 300_000


class MixedCluster:
    """Clients of servers of both kinds; the last server is nats-server."""

    def __init__(self, stack: AsyncExitStack, ports: list[int]) -> None:
        self._stack = stack
        self._ports = ports
        self._probes: list[RawClient] = []
        self._numbers = itertools.count()

    async def clients(self, user: str) -> list[RawClient]:
        """Return a client of each server."""
        found = []
        for port in self._ports:
            client = await join_port(port, user=user, **{"pass": "p"})
            self._stack.callback(client.close)
            found.append(client)
        return found

    async def begin(self) -> None:
        """Wait until messages pass between all servers."""
        for user in "ab":
            probes = await self.clients(user)
            self._probes += probes
            for probe in probes:
                probe.send(b"SUB _sync.> 1\r\n")
                await probe.sync()
        await self.quiet()

    async def quiet(self) -> None:
        """Wait until each server knows the others' interest, and has their messages.

        A message passes behind all that its publisher's server has sent before.
        """
        for _ in range(2):
            number = next(self._numbers)
            async with asyncio.timeout(20):
                for name in itertools.count():
                    if self._have_met(number):
                        break
                    for at, probe in enumerate(self._probes):
                        probe.publish(f"_sync.{number}.{at}.{name}")
                    await asyncio.sleep(PROBE_S)

    def _have_met(self, number: int) -> bool:
        """Return whether each probe has a message of each other one of its account."""
        return all(
            len({got.subject.split(".")[2] for got in probe.messages if begins(got, number)})
            == len(self._ports)
            for probe in self._probes
        )


def begins(got: Any, number: int) -> bool:
    return bool(got.subject.startswith(f"_sync.{number}."))


@contextlib.asynccontextmanager
async def mixed(directory: Path, block: dict[str, Any], more: str) -> AsyncIterator[MixedCluster]:
    """Run two natsd and a nats-server."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(member("A", (), block, accounts=ACCOUNTS))
        go = await stack.enter_async_context(go_server(directory, first, more, USERS))
        second = await stack.enter_async_context(member("B", [first], block, accounts=ACCOUNTS))
        for server in (first, second):
            await eventually_within(lambda each=server: len(cluster_of(each).peers) == 2)
        go_port = int(go.url.rpartition(":")[2])
        cluster = MixedCluster(stack, [first.client_port, second.client_port, go_port])
        await cluster.begin()
        yield cluster


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "pool": ({}, ""),
    "no pool": ({"pool_size": -1}, ""),
    "dedicated routes": ({"accounts": ["A", "B"]}, "accounts: [A, B]"),
    "one dedicated route, compressed": (
        {"accounts": ["A"], "compression": "s2_fast"},
        "accounts: [A], compression: s2_fast",
    ),
}
each_case = pytest.mark.parametrize("case", CASES)


@each_case
async def test_each_plain_subscription_has_a_message_once(case: str, tmp_path: Path) -> None:
    async with mixed(tmp_path, *CASES[case]) as cluster:
        clients, strangers = await cluster.clients("a"), await cluster.clients("b")
        for client in clients + strangers:
            client.send(b"SUB foo.* 1\r\nSUB foo.> 2\r\n")
            await client.sync()
        await cluster.quiet()
        for at, client in enumerate(clients):
            for size in (0, 100, LARGE_BYTES):
                client.publish("foo.bar", b"%d %d " % (at, size) + bytes(size))
            client.send(b"HPUB foo.bar re 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n")
        await eventually_within(lambda: all(len(client.messages) == 24 for client in clients))
        for client in clients:
            await client.sync()
            of_each = Counter((got.sid, got.data[:8], got.headers) for got in client.messages)
            headers = "NATS/1.0\r\nA: b\r\n\r\n"
            assert all(
                count == (3 if head == headers else 1) for (_, _, head), count in of_each.items()
            )
        assert not any(client.messages for client in strangers)


@each_case
async def test_a_queue_group_has_a_message_once(case: str, tmp_path: Path) -> None:
    async with mixed(tmp_path, *CASES[case]) as cluster:
        clients = await cluster.clients("a")
        for first, other in itertools.permutations(clients, 2):
            for client in (first, other):
                client.send(b"SUB work q 1\r\nSUB work r 2\r\n")
                await client.sync()
            await cluster.quiet()
            for publisher in clients:
                for number in range(50):
                    publisher.publish("work", b"%d" % number)
                await cluster.quiet()
                taken = Counter((got.sid, got.data) for client in clients for got in client.take())
                assert len(taken) == 100
                assert set(taken.values()) == {1}
            for client in (first, other):
                client.send(b"UNSUB 1\r\nUNSUB 2\r\n")
                await client.sync()
            await cluster.quiet()


@each_case
async def test_requests_find_responders_or_there_are_none(case: str, tmp_path: Path) -> None:
    async with mixed(tmp_path, *CASES[case]) as cluster:
        clients = await cluster.clients("a")
        for client in clients:
            client.send(b"SUB in.* 9\r\n")
            await client.sync()
        for at, responder in enumerate(clients):
            responder.send(b"SUB ask 1\r\nUNSUB 1 3\r\n")
            await responder.sync()
            await cluster.quiet()
            for number, client in enumerate(clients):
                client.publish("ask", b"?", f"in.{at}{number}")
            await eventually_within(lambda each=responder: len(each.messages) == 3)
            for got in responder.take():
                responder.publish(got.reply, b"!")
            await cluster.quiet()
            for number, client in enumerate(clients):
                subjects = sorted(got.subject for got in client.take())
                assert subjects == [f"in.{at}{each}" for each in range(3)]
                client.publish("ask", b"?", f"in.{at}{number}")
            await cluster.quiet()
            for number, client in enumerate(clients):
                assert [(got.subject, got.headers[:12]) for got in client.take()] == [
                    (f"in.{at}{number}", "NATS/1.0 503")
                ]


@each_case
async def test_streams_and_services_are_imported_across_servers(case: str, tmp_path: Path) -> None:
    async with mixed(tmp_path, *CASES[case]) as cluster:
        exporters, importers = await cluster.clients("a"), await cluster.clients("b")
        for client in importers:
            client.send(b"SUB from.> 1\r\nSUB in.* 2\r\n")
            await client.sync()
        await cluster.quiet()
        for client in exporters:
            client.publish("news.x", b"new")
        await cluster.quiet()
        for client in importers:
            assert [got.subject for got in client.take()] == ["from.news.x"] * 3
        for responder in exporters:
            responder.send(b"SUB help q 3\r\n")
            await responder.sync()
            await cluster.quiet()
            for number, client in enumerate(importers):
                client.publish("help", b"?", f"in.{number}")
            await eventually_within(lambda each=responder: len(each.messages) == 3)
            for got in responder.take():
                assert '"acc":"B"' in got.headers
                responder.publish(got.reply, b"!")
            await eventually_within(lambda: all(len(each.messages) >= 3 for each in importers))
            await cluster.quiet()
            for client in importers:
                assert sorted(got.subject for got in client.take()) == ["in.0", "in.1", "in.2"]
            responder.send(b"UNSUB 3\r\n")
            await responder.sync()
            await cluster.quiet()
