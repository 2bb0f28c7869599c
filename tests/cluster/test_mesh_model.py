"""Random clusters: every delivery is one of the model's (model.py), and none is missing.

Meshes of two to five servers with pools and dedicated routes of all kinds, whose routes are cut,
and which are restarted and reloaded; accounts that share streams and services; permissions of
users and of the cluster. While routes are missing messages may be lost, but none comes twice or to
anybody else.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import pytest
import uvloop
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from natsd import Server
from natsd.cluster.limits import compiled_rules
from natsd.cluster.route import Route
from natsd.config.account_options import read_accounts
from natsd.config.cluster_options import read_cluster
from natsd.core.reasons import ClosedReason
from tests.accounts.model import Sub, User
from tests.accounts.shared import Got
from tests.accounts.test_cross_account_model import accounts, check_activation, is_reply
from tests.cluster.interest import agreed
from tests.cluster.mesh import cluster_of, member, route_url
from tests.cluster.model import ClusterModel, Delivery, Expected, Group
from tests.cluster.raw_client import RawClient, join
from tests.waiting import eventually_within

TORTURE = int(os.environ.get("NATSD_TORTURE", "1"))
NAMES = ("A", "B", "C")
CLIENTS = {"a": "A", "a2": "A", "a3": "A", "b": "B", "b2": "B", "c": "C", "c2": "C"}
SILENT = "a2"
LITERALS = ["a.b", "a.a", "b.a", "a.b.b", "a.B.a", "s.a", "s.a.b", "s.B.a", "b.b"]
PATTERNS = ["a.>", "a.*", "a.b", "b.*", "b.a", "s.>", "s.*.a", "s.*", "a.*.b", "x.>", "y.*.*"]
WIDE = [">", "*.b", "*.*", "*.a"]
QUEUES = ["", "", "q1", "q2"]
SYNC = "_sync"
PERMISSIONS: list[dict[str, Any]] = [
    {},
    {"subscribe": {"deny": ["a.b"]}},
    {"subscribe": {"deny": ["*.a"]}},
    {"subscribe": {"deny": ["a.* q1", "b.>"]}},
    {"publish": {"deny": ["a.a", "s.>"]}},
]
RULES: list[dict[str, Any]] = [
    {},
    {"import": {"allow": ["a.>", "in.>", "s.>", "_sync.>"]}},
    {"import": {"deny": ["a.>"]}},
    {"export": {"deny": ["b.>"]}},
    {"export": {"allow": ["a.>", "in.>", "_sync.>"]}, "import": {"deny": ["b.>"]}},
]


@dataclass
class Plan:
    """What a cluster is made of."""

    clusters: list[dict[str, Any]]
    """The section `cluster` of each server."""
    topology: str
    accounts: dict[str, dict[str, Any]]
    permissions: dict[str, dict[str, Any]]
    homes: dict[str, int]


def apart(account: dict[str, Any]) -> dict[str, Any]:
    """Return the account without mappings that make a service's request a message of a stream.

    The server that imports such a request does not pass it to importers of the stream. Another
    server cannot tell it from a message of the account, and does, as nats-server.
    """
    mappings = account.get("mappings", {})
    kept = {a: b for a, b in mappings.items() if a[0] == b[0] or a[0] != "s"}
    return {**account, **({"mappings": kept} if mappings else {})}


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    size = draw(st.integers(2, 5))
    has_rules = draw(st.booleans())
    pools = draw(st.sampled_from([[-1], [1], [2], [3], [1, 3], [-1, 3]]))
    compression = draw(st.sampled_from(["off", "off", "accept", "s2_fast"]))
    dedicated = draw(st.lists(st.sampled_from(NAMES), unique=True)) if min(pools) > 0 else []
    return Plan(
        clusters=[
            {
                "pool_size": pools[index % len(pools)],
                "compression": compression,
                "accounts": dedicated,
                **({"permissions": draw(st.sampled_from(RULES))} if has_rules else {}),
            }
            for index in range(size)
        ],
        topology=draw(st.sampled_from(["star", "chain", "each"])),
        accounts={name: {} if has_rules else apart(draw(accounts(name))) for name in NAMES},
        permissions={client: draw(st.sampled_from(PERMISSIONS)) for client in CLIENTS},
        homes={client: draw(st.integers(0, size - 1)) for client in CLIENTS},
    )


SOME_CLIENT = st.sampled_from(sorted(CLIENTS))
SOME_SERVER = st.integers(0, 4)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("subscribe"),
            SOME_CLIENT,
            st.sampled_from(PATTERNS + WIDE),
            st.sampled_from(QUEUES),
        ),
        st.tuples(st.just("unsubscribe"), st.integers(0, 20)),
        st.tuples(
            st.just("publish"),
            st.lists(st.tuples(SOME_CLIENT, st.sampled_from(LITERALS)), min_size=1, max_size=12),
        ),
        st.tuples(st.just("request"), SOME_CLIENT, st.sampled_from(LITERALS)),
        st.tuples(st.just("cut"), SOME_SERVER, SOME_SERVER),
        st.tuples(st.just("restart"), SOME_SERVER),
        st.tuples(
            st.just("reload"), st.sampled_from([[], ["A"], ["B", "C"]]), st.sampled_from([1, 2, 3])
        ),
    ),
    min_size=3,
    max_size=14,
)


@dataclass
class Sent:
    """A message that was published, and what the model says of it."""

    publisher: str
    subject: str
    expected: Expected
    received: list[tuple[str, Got]] = field(default_factory=list)


class Run:
    """One history, on a cluster and on the model."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.model = ClusterModel(
            plan.accounts, {client: User(plan.permissions[client]) for client in CLIENTS}
        )
        self.model.silent = {SILENT}
        self.model.homes = dict(plan.homes)
        self.servers: list[Server] = []
        self.clients: dict[str, RawClient] = {}
        self.probes: dict[tuple[int, str], RawClient] = {}
        self.has_rules = any("permissions" in each for each in plan.clusters)
        self.is_whole = True  # all routes are there, and all interest is known
        self.sent: dict[bytes, Sent] = {}
        self.numbers = itertools.count(1)

    # ---- the servers

    async def start(self) -> None:
        for index, block in enumerate(self.plan.clusters):
            rules = read_cluster({"port": -1, **block}).rules
            self.model.rules[index] = compiled_rules(rules)
            others = {
                "star": self.servers[:1],
                "chain": self.servers[-1:],
                "each": self.servers,
            }[self.plan.topology]
            block["routes"] = [route_url(each) for each in others]
            server = self.made(index)
            await server.start()
            self.servers.append(server)
            block["port"] = cluster_of(server).port
            await self.settle(index)
        for client, patterns in zip(CLIENTS, PATTERNS, strict=False):
            await self.subscribe(client, patterns, "")
            await self.subscribe(client, "a.>", "q1")
        await self.healed()

    def made(self, index: int) -> Server:
        users = {
            name: {
                "users": [
                    {
                        "user": client,
                        "password": "-",
                        **({"permissions": rules} if rules else {}),
                    }
                    for client, rules in [*self.plan.permissions.items(), (name, None)]
                    if CLIENTS.get(client, name) == name
                ]
            }
            for name in NAMES
        }
        given = {**users, "Z": {"mappings": {"x": "y"}}}
        return member(f"S{index}", cluster=self.plan.clusters[index], accounts=given)

    async def settle(self, index: int) -> None:
        """Give a server that was started its imports and exports, and its clients."""
        server = self.servers[index]
        links = server.links
        assert links is not None
        links.configure(read_accounts(self.plan.accounts))
        for name in NAMES:
            probe = self.probes[index, name] = await join(server, user=name, **{"pass": "-"})
            probe.send(f"SUB {SYNC}.> 1\r\n".encode())
            await probe.sync()
        for client, home in self.plan.homes.items():
            if home == index:
                said = {"user": client, "pass": "-", "echo": client != SILENT}
                self.clients[client] = await join(server, **said)

    async def stop(self) -> None:
        for client in [*self.clients.values(), *self.probes.values()]:
            client.close()
        for server in self.servers:
            await server.stop()
        clients = [*self.clients.values(), *self.probes.values()]
        await eventually_within(lambda: all(client.is_closed for client in clients))

    async def healed(self) -> None:
        """Wait until nothing is under way."""
        await agreed(self.servers)
        self.is_whole = True

    async def quiet(self) -> None:
        """Wait until each message of each client has reached everybody whom it can reach.

        Messages pass between two servers in the order in which they were published in an account,
        so that each is there when a later one is. A response of another account takes two ways.
        """
        for client in self.clients.values():
            await client.sync()
        for _ in range(2):
            subject = f"{SYNC}.{next(self.numbers)}"
            for probe in self.probes.values():
                probe.messages.clear()
                probe.publish(subject)
            await eventually_within(self.has_synced)
        for client in self.clients.values():
            await client.sync()

    def has_synced(self) -> bool:
        return all(len(probe.messages) >= len(self.servers) for probe in self.probes.values())

    # ---- steps

    async def do(self, step: tuple[Any, ...]) -> None:
        await getattr(self, step[0])(*step[1:])

    async def subscribe(self, client: str, pattern: str, queue: str) -> None:
        if self.has_rules and pattern in WIDE:
            return
        sid = str(next(self.numbers))
        self.clients[client].send(f"SUB {pattern} {queue} {sid}\r\n".encode())
        await self.clients[client].sync()
        may = self.model.users[client].may_subscribe(pattern, queue)
        errors = self.clients[client].errors
        assert [error.startswith("-ERR 'Permissions") for error in errors] == [True] * (not may)
        errors.clear()
        if may:
            self.model.subs.append(Sub(CLIENTS[client], client, sid, pattern, queue))

    async def unsubscribe(self, index: int) -> None:
        if index < len(self.model.subs):
            sub = self.model.subs.pop(index)
            self.clients[sub.client].send(f"UNSUB {sub.sid}\r\n".encode())
            await self.clients[sub.client].sync()

    async def cut(self, one: int, other: int) -> None:
        """End all routes between two servers, while clients publish."""
        if max(one, other) >= len(self.servers) or one == other:
            return
        ends = [*routes_between(self.servers[one], self.servers[other])]
        far_ends = [*routes_between(self.servers[other], self.servers[one])]
        for route in ends:
            route.close(ClosedReason.READ_ERROR)
        self.is_whole = False
        for client in CLIENTS:
            self.post(client, "a.b")
        await eventually_within(lambda: all(route.reason for route in [*ends, *far_ends]))
        await self.publish([(client, "a.a") for client in CLIENTS])

    async def restart(self, index: int) -> None:
        """Stop a server, and start another one in its place."""
        if index >= len(self.servers):
            return
        self.model.subs = [sub for sub in self.model.subs if self.model.homes[sub.client] != index]
        await self.servers[index].stop()
        self.servers[index] = self.made(index)
        await self.servers[index].start()
        await self.settle(index)
        self.is_whole = False

    async def reload(self, dedicated: list[str], pool_size: int) -> None:
        """Let accounts move between connections, while clients publish."""
        if any(block["pool_size"] < 0 for block in self.plan.clusters):
            return
        self.is_whole = False
        for server, block in zip(self.servers, self.plan.clusters, strict=True):
            block.update(accounts=dedicated, pool_size=pool_size)
            options = server.options.cluster
            assert options is not None
            server.reload(cluster=replace(options, accounts=dedicated, pool_size=pool_size))
            for client in CLIENTS:
                self.post(client, "a.b")
            for connection in self.clients.values():
                await connection.sync()
        await self.healed()
        await self.quiet()
        self.check(is_whole=False, is_in_order=False)

    async def publish(self, messages: list[tuple[str, str]]) -> None:
        """Publish messages, each client its own in order; check the deliveries."""
        if self.is_whole:
            await self.healed()  # servers know of the subscriptions since
        is_whole = self.is_whole
        for client, subject in messages:
            self.post(client, subject)
        if not is_whole:
            await self.healed()
        await self.quiet()
        self.check(is_whole=is_whole)

    def post(self, client: str, subject: str, reply: str = "") -> Sent | None:
        """Publish a message, of which its payload is the name; None: it may not be published."""
        account = CLIENTS[client]
        name = f"{client} {next(self.numbers)}".encode()
        self.clients[client].publish(subject, name, reply)
        if not self.model.users[client].may_publish(self.model.mapped(account, subject)):
            return None
        expected = self.model.deliveries(client, account, subject)
        sent = self.sent[name] = Sent(client, subject, expected)
        return sent

    async def request(self, client: str, subject: str) -> None:
        """Send a request, of which the first recipient answers, or nobody is there to do so."""
        await self.healed()
        inbox = f"in.{next(self.numbers)}"
        await self.subscribe(client, inbox, "")
        await self.healed()
        sent = self.post(client, subject, inbox)
        await self.quiet()
        refusals = [got for got in self.clients[client].messages if got.headers]
        refusals = [got for got in refusals if got.headers.startswith("NATS/1.0 503")]
        assert len(refusals) == (sent is not None and not sent.expected.is_taken), subject
        for got in refusals:
            self.clients[client].messages.remove(got)
        self.check(is_whole=True)
        if sent is not None and sent.received:
            await self.answer(client, inbox, *sent.received[0])

    async def answer(self, requestor: str, inbox: str, responder: str, request: Got) -> None:
        """Answer a request; the answer reaches the requestor, whatever its account."""
        name = f"{responder} {next(self.numbers)}".encode()
        if request.reply == inbox:
            self.post(responder, inbox)
        else:
            assert is_reply(request.reply)
            if not self.model.users[responder].may_publish(request.reply):
                return
            home, account = self.model.homes[requestor], CLIENTS[requestor]
            expected = self.model.answer(home, responder, account, inbox)
            self.sent[name] = Sent(responder, inbox, expected)
            self.clients[responder].publish(request.reply, name)
        await self.quiet()
        self.check(is_whole=True)

    # ---- checks

    def check(self, *, is_whole: bool, is_in_order: bool = True) -> None:
        """Compare what clients received with the model; without all routes, less may arrive.

        While accounts move, later messages may overtake earlier ones on another connection.
        """
        queued = {sub.sid for sub in self.model.subs if sub.queue}
        order: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        for client, connection in self.clients.items():
            for got in connection.take():
                if got.subject.startswith(SYNC) or is_reply(got.subject):
                    continue
                sent = self.sent.get(got.data)
                assert sent is not None, (client, got.subject, got.data)
                sent.received.append((client, got))
                if got.sid not in queued:  # a server that cannot serve a group sends it elsewhere
                    order[client, got.sid, sent.publisher].append(int(got.data.split()[1]))
            connection.errors.clear()
        for sent in self.sent.values():
            self.check_one(sent, queued, is_whole)
        for numbers in order.values():
            assert not is_in_order or numbers == sorted(numbers)
        self.sent.clear()

    def check_one(self, sent: Sent, queued: set[str], is_whole: bool) -> None:
        what = (sent.publisher, sent.subject)
        plain = Counter(
            (client, got.sid, got.subject) for client, got in sent.received if got.sid not in queued
        )
        taken = [(client, got.sid) for client, got in sent.received if got.sid in queued]
        if is_whole:
            assert plain == sent.expected.plain, what
        else:
            assert plain <= sent.expected.plain, what
        assert is_fair(taken, sent.expected.groups, is_whole), (what, taken, sent.expected.groups)


def routes_between(server: Server, other: Server) -> Iterator[Route]:
    """Yield the connections of one server to another one."""
    for route in cluster_of(server).routes.values():
        if route.remote_id == other.id:
            yield route


def is_fair(taken: list[Delivery], groups: list[Group], is_whole: bool) -> bool:
    """Return whether one member of each group took the message."""
    if not groups:
        return not taken
    group, *others = groups
    may_lack = not is_whole or group.may_be_lost or not group.takers
    if may_lack and is_fair(taken, others, is_whole):
        return True
    return any(
        each in group.takers and is_fair([*taken[:at], *taken[at + 1 :]], others, is_whole)
        for at, each in enumerate(taken)
    )


async def run(plan: Plan, steps: list[tuple[Any, ...]]) -> None:
    history = Run(plan)
    try:
        await history.start()
        for step in steps:
            await history.do(step)
        await history.healed()
        await history.publish([(client, subject) for client in CLIENTS for subject in LITERALS])
        for client in ("b", "c"):
            for subject in ("s.a", "a.b"):
                await history.request(client, subject)
    finally:
        await history.stop()


@settings(
    max_examples=20 * TORTURE,
    deadline=None,
    report_multiple_bugs=False,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if TORTURE > 1 else [])),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(plans(), STEPS)
@pytest.mark.torture
def test_every_delivery_is_one_of_the_model(plan: Plan, steps: list[tuple[Any, ...]]) -> None:
    with ExitStack() as patches, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        patches.enter_context(patch("natsd.server.sharing.no_activation", check_activation))
        patches.enter_context(patch("natsd.cluster.dialer.PAUSE_S", 0.02))
        patches.enter_context(patch("natsd.cluster.dialer.JITTER_S", 0.01))
        runner.run(run(plan, steps))
