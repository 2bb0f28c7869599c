"""Routes between natsd and the nats-server on PATH, if there is one."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client as NatsClient

from natsd import Server
from tests.clients.secure import Trust
from tests.cluster.mesh import client, cluster_of, inbox, member, route_url, routes_of
from tests.monitor.beside import newer_go_server
from tests.waiting import eventually_within

GO_SERVER = newer_go_server()
pytestmark = pytest.mark.skipif(GO_SERVER is None, reason="there is no nats-server on PATH")

CONFIG = """
listen: "127.0.0.1:-1"
server_name: G
ports_file_dir: "{directory}"
cluster {{ name: C, listen: "127.0.0.1:-1", routes: ["{route}"]
{more} }}
{rest}
"""


class GoServer:
    """A nats-server in its own process."""

    def __init__(self, ports: dict[str, list[str]]) -> None:
        self.url = ports["nats"][0]
        self.port = int(ports["cluster"][0].rpartition(":")[2])


@contextlib.asynccontextmanager
async def go_server(
    directory: Path, peer: Server, more: str = "", rest: str = ""
) -> AsyncIterator[GoServer]:
    """Run a nats-server that dials a natsd."""
    assert GO_SERVER is not None
    text = CONFIG.format(directory=directory, route=route_url(peer), more=more, rest=rest)
    (directory / "go.conf").write_text(text)
    process = await asyncio.create_subprocess_exec(
        GO_SERVER, "-c", directory / "go.conf", "-DV", "-l", directory / "go.log"
    )
    try:
        file = directory / f"nats-server_{process.pid}.ports"
        await eventually_within(lambda: file.exists() and file.read_text().endswith("}"))
        yield GoServer(json.loads(file.read_text()))
    finally:
        process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def go_client(server: GoServer, **options: Any) -> AsyncIterator[NatsClient]:
    connection = await nats.connect(server.url, allow_reconnect=False, **options)
    try:
        yield connection
    finally:
        await connection.close()


async def exchange(natsd: Server, go: GoServer) -> None:
    """Send messages both ways: plain, with headers, in queue groups, and requests."""
    async with client(natsd) as ours, go_client(go) as theirs:
        for way, near, far in (("to", ours, theirs), ("from", theirs, ours)):
            plain = await inbox(far, f"{way}.plain.*")
            work = await inbox(far, f"{way}.work", "workers")

            async def answer(message: Any) -> None:
                await message.respond(message.data)

            await far.subscribe(f"{way}.echo", cb=answer)
            await far.flush()
            await _known(near, f"{way}.echo")
            for size in (0, 1, 3000, 200_000):
                await near.publish(f"{way}.plain.a", b"x" * size, headers={"size": str(size)})
            for _ in range(20):
                await near.publish(f"{way}.work", b"", reply="nobody")
            assert (await near.request(f"{way}.echo", b"ping", timeout=5)).data == b"ping"
            await plain.filled(4)
            assert [(len(each.data), each.headers) for each in plain] == [
                (size, {"size": str(size)}) for size in (0, 1, 3000, 200_000)
            ]
            await work.filled(20)
            assert len(work) == 20


async def _known(near: NatsClient, subject: str) -> None:
    """Wait until the interest of the other server in a subject is known here."""
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(nats.errors.NoRespondersError, nats.errors.TimeoutError):
                await near.request(subject, b"", timeout=1)
                return
            await asyncio.sleep(0.01)


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "pool": ({}, ""),
    "natsd without a pool": ({"pool_size": -1}, ""),
    "nats-server without a pool": ({}, "pool_size: -1"),
    "pools of two sizes": ({"pool_size": 5}, "pool_size: 2"),
    "compressed as nats-server says": ({}, "compression: s2_best"),
    "compressed as natsd says": ({"compression": "s2_fast"}, ""),
    "compressed by the round trip time": ({"compression": "s2_auto"}, "compression: s2_auto"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("is_dialed", [False, True], ids=["accepted", "dialed"])
async def test_messages_pass_both_ways(name: str, is_dialed: bool, tmp_path: Path) -> None:
    block, more = CASES[name]
    async with member("A", cluster=block) as first, go_server(tmp_path, first, more) as go:
        await eventually_within(lambda: routes_of(first))
        if not is_dialed:
            await exchange(first, go)
            return
        async with member("B", [go.port], block) as second:
            await eventually_within(lambda: len(cluster_of(second).peers) == 2)
            await exchange(second, go)


@pytest.mark.parametrize("compression", ["off", "s2_better"])
async def test_messages_pass_encrypted(compression: str, tmp_path: Path) -> None:
    trust = Trust(tmp_path)
    block = {"tls": trust.verifying, "compression": compression}
    files = "\n".join(f'{name}: "{path}"' for name, path in trust.settings.items())
    more = f'compression: {compression}, tls {{ {files}\n ca_file: "{trust.authority.ca_file}" }}'
    async with member("A", cluster=block) as first, go_server(tmp_path, first, more) as go:
        await eventually_within(lambda: routes_of(first))
        await exchange(first, go)
        async with member("B", [go.port], block) as second:
            await eventually_within(lambda: len(cluster_of(second).peers) == 2)
            await exchange(second, go)


async def test_accounts_have_routes_of_their_own(tmp_path: Path) -> None:
    accounts = {"ONE": {"users": [{"user": "u", "password": "p"}]}}
    login = {"user": "u", "password": "p"}
    rest = "accounts { ONE { users: [{user: u, password: p}] } }"
    async with member("A", cluster={"accounts": ["ONE"]}, accounts=accounts) as first:
        async with go_server(tmp_path, first, "accounts: [ONE]", rest) as go:
            await eventually_within(
                lambda: {route.account_name for route in routes_of(first)} == {"", "$SYS", "ONE"}
            )
            async with client(first, **login) as ours, go_client(go, **login) as theirs:
                got = await inbox(theirs, "foo")
                await eventually_within(lambda: first.accounts["ONE"].sublist.has_interest("foo"))
                await ours.publish("foo", b"1")
                await got.filled(1)


async def test_interest_ends_with_the_other_server(tmp_path: Path) -> None:
    async with member("A") as first:
        sublist = first.accounts["$G"].sublist
        async with go_server(tmp_path, first) as go, go_client(go) as theirs:
            await inbox(theirs, "foo")
            await eventually_within(lambda: sublist.has_interest("foo"))
        await eventually_within(lambda: not sublist.has_interest("foo"))
        assert not routes_of(first)
