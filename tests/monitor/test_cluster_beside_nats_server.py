"""What two natsd of a cluster tell of it, beside two nats-servers 2.14 with the same settings.

Keys, their order, JSON types and values must be equal; `MAY_DIFFER` lists the exceptions.
"""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import nats
import pytest
from nats.aio.subscription import Subscription

from tests.cluster.mesh import mesh
from tests.monitor.beside import newer_go_server
from tests.monitor.comparing import differences
from tests.waiting import DEADLINE_S, POLL_S, eventually_within

GO_SERVER = newer_go_server()
pytestmark = pytest.mark.skipif(
    GO_SERVER is None, reason="there is no nats-server of version 2.14 or later on PATH"
)

CONFIG: Final = """
server_name: S{index}
listen: "127.0.0.1:-1"
http: "127.0.0.1:-1"
ports_file_dir: "{directory}"
accounts {{
  A {{ users: [{{user: ann, password: right}}] }}
  B {{ users: [{{user: ben, password: right}}] }}
  SYS {{ users: [{{user: sys, password: right}}] }}
}}
system_account: SYS
cluster {{
  name: C, listen: "127.0.0.1:-1", pool_size: 2, accounts: [B], routes: [{routes}]
  permissions {{ import: {{deny: "secret.in"}}, export: {{allow: ["*", "*.>"]}} }}
}}
"""
ACCOUNTS: Final[dict[str, Any]] = {
    "A": {"users": [{"user": "ann", "password": "right"}]},
    "B": {"users": [{"user": "ben", "password": "right"}]},
    "SYS": {"users": [{"user": "sys", "password": "right"}]},
}
CLUSTER: Final[dict[str, Any]] = {
    "pool_size": 2,
    "accounts": ["B"],
    "permissions": {"import": {"deny": "secret.in"}, "export": {"allow": ["*", "*.>"]}},
}
MAY_DIFFER: Final[dict[str, str]] = {
    r".*\.(port|mem|cpu|rid|cid|seq|ver|cluster_port|rtt)": "it is the server's own",
    r".*\.(connect_urls|urls)\[\]": "addresses with ports that the system chose",
    r"/varz\.(natsd|go|gomaxprocs|http_port|config_digest)": "natsd's own; a matter of taste",
    r"/varz\.(subscriptions|http_req_stats.*|config_load_time)": "the server's own; the test asks",
    r".*\.num_subscriptions": "the server's own subjects",
    r".*/varz\.(in|out)_(msgs|bytes)": "nats-server counts what it publishes itself",
    r"/accstatz\.account_statz\[\]\.(sent|received)\.(routes\.)?(msgs|bytes)": "so does it here",
    r"statsz\.statsz\.(subscriptions|mem|cpu|gomaxprocs)": "the server's own",
    r"statsz\.statsz\.active_accounts": "nats-server counts an account with its own routes",
    r"statsz\.statsz\.(sent|received)\.(msgs|bytes)": "nats-server counts its own messages",
    r"statsz\.statsz\.routes\[\]\.(rid|pending|(sent|received)\.(msgs|bytes))": "system account",
    r"statsz\.server\.(flags|feature_flags|jetstream)": "docs/differences.md",
    r"/varz\.feature_flags.*": "docs/differences.md",
}


class Pair:
    """Two servers of a cluster: URLs for clients, and the ports of monitoring."""

    def __init__(self, urls: Sequence[str], http_ports: Sequence[int]) -> None:
        self.urls = urls
        self.http_ports = http_ports

    async def ask(self, index: int, path: str) -> Any:
        """Return the decoded answer of a server."""
        url = f"http://127.0.0.1:{self.http_ports[index]}{path}"
        return json.loads(await asyncio.to_thread(lambda: urllib.request.urlopen(url).read()))

    async def put_load(self, stack: AsyncExitStack) -> None:
        """Subscribe at the second server, and publish at the first."""
        for user in ("ann", "ben"):
            login = {"user": user, "password": "right", "allow_reconnect": False}
            near, far = [await nats.connect(url, **login) for url in self.urls]
            for each in (near, far):
                stack.push_async_callback(each.close)
            got = [await far.subscribe("a.*"), await far.subscribe("q", "workers")]
            await far.flush()
            await self._interested(user)
            for subject in ("a.b", "q"):
                await near.publish(subject, b"12345")
            await near.flush()
            await delivered(got)

    async def _interested(self, user: str) -> None:
        """Wait until the first server knows the subscriptions of that user."""
        account = "" if user == "ann" else "B"
        await self.until(
            0,
            lambda routes: any(
                {"a.*", "q"} <= set(row.get("subscriptions_list", ()))
                for row in routes
                if row.get("account", "") == account
            ),
        )

    async def until(self, index: int, condition: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Wait until the routes of a server meet a condition."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + DEADLINE_S
        while True:
            routes = (await self.ask(index, "/routez?subs=1"))["routes"]
            if condition(routes):
                return
            assert loop.time() < give_up_at, routes
            await asyncio.sleep(POLL_S)

    async def statsz(self) -> Any:
        """Return the load of the first server, as the system account gets it."""
        admin = await nats.connect(self.urls[1], user="sys", password="right")
        try:
            subject = "$SYS.REQ.SERVER.PING.STATSZ"
            reply = await admin.request(subject, b'{"server_name": "S0"}', timeout=10)
            return json.loads(reply.data)
        finally:
            await admin.close()


def is_written(ports: Path) -> bool:
    """Return whether a server has written its ports file."""
    return ports.exists() and ports.read_text().endswith("}")


@asynccontextmanager
async def go_pair(directory: Path) -> AsyncIterator[Pair]:
    assert GO_SERVER is not None
    processes, found = [], []
    routes = ""
    try:
        for index in range(2):
            file = directory / f"go{index}.conf"
            file.write_text(CONFIG.format(index=index, directory=directory, routes=routes))
            process = await asyncio.create_subprocess_exec(
                GO_SERVER, "-c", file, "-l", directory / f"go{index}.log"
            )
            processes.append(process)
            ports = directory / f"nats-server_{process.pid}.ports"
            await eventually_within(partial(is_written, ports))
            found.append(json.loads(ports.read_text()))
            routes = f'"nats-route://127.0.0.1:{found[0]["cluster"][0].rpartition(":")[2]}"'
        yield Pair(
            [each["nats"][0] for each in found],
            [int(each["monitoring"][0].rpartition(":")[2]) for each in found],
        )
    finally:
        for process in processes:
            process.terminate()
            await process.wait()


async def delivered(subscriptions: Sequence[Subscription]) -> None:
    """Wait until each subscription has its message."""
    await eventually_within(lambda: all(each.pending_msgs == 1 for each in subscriptions))


async def routed(pair: Pair) -> None:
    """Wait until all routes are there: two of the pool, and those of B and SYS."""
    for index in range(2):
        await pair.until(index, lambda routes: len(routes) == 4)


def assert_alike(ours: Any, theirs: Any, path: str) -> None:
    found = [
        each
        for each in differences(comparable(ours), comparable(theirs), path)
        if not any(re.fullmatch(pattern, each[0]) for pattern in MAY_DIFFER)
    ]
    assert not found, path


def comparable(answer: Any) -> Any:
    """Return an answer without rows and members that are the server's own."""
    if isinstance(answer, dict):
        return {name: comparable(value) for name, value in answer.items() if name != "timestamp"}
    if isinstance(answer, list):
        rows = (
            [comparable(row) for row in answer if "$SYS" not in str(row.get("subject", ""))]
            if (answer and isinstance(answer[0], dict))
            else answer
        )
        return sorted(rows, key=_rank)
    return answer


def _rank(row: Any) -> str:
    if not isinstance(row, dict):
        return str(row)
    told = [str(row.get(name, "")) for name in ("acc", "account", "subject", "did_solicit")]
    return "\n".join((*told, f"{row.get('out_msgs', 0):09}"))


def of_users(routez: Any) -> Any:
    """Return `/routez` without the route of the system account, whose traffic is the server's."""
    rows = [row for row in routez["routes"] if row.get("account") != "SYS"]
    return routez | {"routes": rows}


async def test_the_answers_about_a_cluster_are_alike(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(
            mesh(2, CLUSTER, accounts=ACCOUNTS, system_account="SYS", http_port=-1)
        )
        ours = Pair([each.client_url for each in servers], [each.http_port for each in servers])
        theirs = await stack.enter_async_context(go_pair(tmp_path))
        pairs = (ours, theirs)
        for pair in pairs:
            await routed(pair)
            await pair.put_load(stack)
        for index in range(2):
            for query in ("", "?subs=1", "?subs=detail"):
                mine, other = [of_users(await each.ask(index, f"/routez{query}")) for each in pairs]
                assert_alike(mine, other, f"/routez{query}")
            for path in ("/varz", "/accstatz"):
                mine, other = [await each.ask(index, path) for each in pairs]
                assert_alike(mine, other, path)
        mine, other = [await each.statsz() for each in pairs]
        assert_alike(mine, other, "statsz")
