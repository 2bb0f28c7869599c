"""What servers tell each other of what their accounts use, and what they count because of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from natsd.accounts import Account
from natsd.jetstream.account_resources import AccountResources
from natsd.jetstream.meta_group.shared_usage import (
    ACCOUNTS_AT_ONCE,
    BYTES_MAX,
    FORGOTTEN_AFTER_S,
    SUBJECT,
    TOLD_AGAIN_S,
    TOLD_EVERY_S,
    SharedUsage,
)
from natsd.jetstream.models.account import AccountLimits
from natsd.jetstream.tiers import AccountTiers
from tests.jetstream.serving import build, tiers_of

LIMITED = AccountLimits(max_memory=1000, max_storage=1000)
Handler = Callable[[str, str | None, bytes, bytes], object]


class Network:
    """The servers, their clock, and what they have sent; lost messages reach nobody."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now_s = 0.0
        self.sent: list[bytes] = []
        self.is_down = False
        self.servers: dict[str, Server] = {}
        self.dismissed: set[str] = set()

    def add(self, name: str, limits: AccountLimits | AccountTiers = LIMITED) -> Server:
        """Start a server with the account A, or start it anew: it knows nothing."""
        server = self.servers[name] = Server(self, name)
        server.serve("A", limits)
        server.usage.start()
        return server

    def pass_time(self, for_s: float = TOLD_EVERY_S) -> None:
        """Have time pass, and all timers run."""
        for _ in range(round(for_s / TOLD_EVERY_S)):
            self.now_s += TOLD_EVERY_S
            for server in list(self.servers.values()):
                server.run_timer()

    def send(self, data: bytes) -> None:
        self.sent.append(data)
        for server in list(self.servers.values()):
            if not self.is_down and server.handler is not None:
                server.handler(SUBJECT, None, b"", data)

    def forge(self, **told: Any) -> None:
        self.send(json.dumps(told).encode())


class Server:
    """A server; it is the event loop and the system account's client of its shared usage, too."""

    def __init__(self, network: Network, name: str) -> None:
        self._network = network
        self._jetstream = build(network.directory / name)
        self._timer: Callable[[], object] | None = None
        self.handler: Handler | None = None
        self.accounts: dict[str, AccountResources] = {}
        self.usage = SharedUsage(
            name,
            self.accounts,
            self,  # type: ignore[arg-type]  # as much of a client as it needs
            lambda server: server in network.servers and server not in network.dismissed,
            self,  # type: ignore[arg-type]  # as much of a loop as it needs
        )

    def serve(self, name: str, limits: AccountLimits | AccountTiers) -> AccountResources:
        account = Account(name, self._jetstream.reactor)
        served = AccountResources(self._jetstream, account, tiers_of(limits))
        self.accounts[name] = served
        return served

    def use(self, size: int, account: str = "A", replicas: int = 1) -> None:
        """Store so many bytes, or remove them."""
        self.accounts[account].tiers.usage_of(replicas).count(is_memory=False, change=size)

    def elsewhere(self, account: str = "A", replicas: int = 1) -> int:
        """Return the bytes in files that are counted because of other servers."""
        return self.accounts[account].tiers.usage_of(replicas).file_elsewhere

    def has_room(self, size: int, account: str = "A", replicas: int = 1) -> bool:
        usage = self.accounts[account].tiers.usage_of(replicas)
        return not usage.is_over(is_memory=False, more=size)

    def run_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer()

    # What it is of a client, and of a loop

    def publish(self, _subject: str, data: bytes) -> None:
        self._network.send(data)

    def subscribe(self, _subject: str, handler: Handler) -> None:
        self.handler = handler

    def time(self) -> float:
        return self._network.now_s

    def call_later(self, _delay_s: float, timer: Callable[[], object]) -> None:
        self._timer = timer


@pytest.fixture
async def network(tmp_path: Path) -> Iterator[Network]:
    return Network(tmp_path)


async def test_what_others_use_leaves_less_room(network: Network) -> None:
    one, two, three = network.add("n1"), network.add("n2"), network.add("n3")
    one.use(300)
    two.use(400)
    assert three.has_room(1000)
    network.pass_time()
    assert [each.elsewhere() for each in (one, two, three)] == [400, 300, 700]
    assert three.has_room(300)
    assert not three.has_room(301)
    two.use(-400)
    network.pass_time()
    assert [each.elsewhere() for each in (one, two, three)] == [0, 300, 300]
    assert three.has_room(700)


async def test_memory_and_files_are_told_apart(network: Network) -> None:
    one, two = network.add("n1"), network.add("n2")
    one.accounts["A"].tiers.usage_of(1).count(is_memory=True, change=600)
    network.pass_time()
    usage = two.accounts["A"].tiers.usage_of(1)
    assert (usage.memory_elsewhere, usage.file_elsewhere) == (600, 0)
    assert not usage.is_over(is_memory=False, more=1000)
    assert usage.is_over(is_memory=True, more=401)


async def test_the_limit_of_a_tier_counts_a_streams_bytes_once(network: Network) -> None:
    tiers = {"R1": AccountLimits(max_storage=500), "R3": AccountLimits(max_storage=1000)}
    servers = [network.add(name, tiers) for name in ("n1", "n2", "n3")]
    for each in servers:
        each.use(900, replicas=3)
    network.pass_time()
    for each in servers:
        assert (each.elsewhere(replicas=3), each.elsewhere(replicas=1)) == (1800, 0)
        assert each.has_room(3 * 100, replicas=3)
        assert not each.has_room(3 * 101, replicas=3)
        assert each.has_room(500, replicas=1)


async def test_only_changes_are_told_and_everything_from_time_to_time(network: Network) -> None:
    one, two = network.add("n1"), network.add("n2")
    one.use(300)
    network.pass_time()
    network.sent.clear()
    network.pass_time(TOLD_AGAIN_S - 1)
    assert network.sent == []
    one.use(100)
    network.is_down = True
    network.pass_time()
    network.is_down = False
    assert (len(network.sent), two.elsewhere()) == (1, 300)
    network.pass_time(TOLD_AGAIN_S)
    assert two.elsewhere() == 400, "a message that was lost is made up for"


async def test_a_server_that_starts_anew_learns_what_others_use(network: Network) -> None:
    one, two = network.add("n1"), network.add("n2")
    one.use(300)
    two.use(200)
    network.pass_time()
    two = network.add("n2")  # with an empty disk
    assert (one.elsewhere(), two.elsewhere()) == (0, 0)
    network.pass_time()
    assert (one.elsewhere(), two.elsewhere()) == (0, 300)


@pytest.mark.parametrize("hears", ["n1", "n2"])
async def test_all_is_told_once_two_servers_hear_of_each_other(
    network: Network, hears: str
) -> None:
    one = network.add("n1")
    one.use(300)
    network.pass_time()
    network.is_down = True
    two = network.add("n2")  # whose question is lost
    two.use(200)
    network.pass_time()
    network.is_down = False
    network.servers[hears].usage.exchange()
    network.pass_time(2 * TOLD_EVERY_S)
    assert (one.elsewhere(), two.elsewhere()) == (200, 300)
    network.sent.clear()
    network.pass_time(TOLD_AGAIN_S / 2)
    assert network.sent == [], "an answer is no question"


async def test_an_account_that_is_served_later_is_asked_for(network: Network) -> None:
    one, two = network.add("n1"), network.add("n2")
    one.serve("B", LIMITED)
    one.use(300, "B")
    network.pass_time()
    served = two.serve("B", LIMITED)
    two.usage.limits_changed(served)
    network.pass_time(2 * TOLD_EVERY_S)
    assert two.elsewhere("B") == 300


async def test_other_limits_count_the_same_bytes(network: Network) -> None:
    one, two = network.add("n1"), network.add("n2")
    one.use(300)
    network.pass_time()
    tiers = {"R1": AccountLimits(max_storage=500)}
    for each in (one, two):
        each.accounts["A"].tiers.change(tiers)
        each.usage.limits_changed(each.accounts["A"])
    one.use(300)  # the account counts its streams anew
    network.pass_time(2 * TOLD_EVERY_S)
    assert two.elsewhere() == 300
    assert not two.has_room(201)


async def test_an_account_without_limits_costs_nothing(network: Network) -> None:
    one, two = network.add("n1", AccountLimits()), network.add("n2", AccountLimits())
    one.use(300)
    network.pass_time(TOLD_AGAIN_S)
    assert (network.sent, two.elsewhere()) == ([], 0)


async def test_an_account_that_is_left_uses_nothing(network: Network) -> None:
    one, two = network.add("n1"), network.add("n2")
    one.use(300)
    network.pass_time()
    one.usage.account_left("A")
    del one.accounts["A"]
    assert two.elsewhere() == 0


async def test_a_server_that_is_gone_is_forgotten_after_a_while(network: Network) -> None:
    network.add("n1").use(300)
    two = network.add("n2")
    network.pass_time()
    network.servers["n1"].handler = None
    network.servers["n1"].run_timer = lambda: None  # type: ignore[method-assign]  # it is killed
    network.pass_time(FORGOTTEN_AFTER_S - 1)
    assert two.elsewhere() == 300, "it may come back with all that it had"
    network.pass_time(2)
    assert two.elsewhere() == 0


async def test_a_server_that_was_removed_is_forgotten_at_once(network: Network) -> None:
    network.add("n1").use(300)
    two = network.add("n2")
    network.pass_time()
    network.dismissed.add("n1")
    network.pass_time()
    assert two.elsewhere() == 0


NONSENSE = [
    b"",
    b"no JSON",
    b"\xff\xfe",
    b"[]",
    b'{"server":"n1"}',
    b'{"server":"n1","accounts":[]}',
    b'{"server":7,"accounts":{}}',
    b'{"server":"n1","accounts":{"A":{"":[1]}}}',
    b'{"server":"n1","accounts":{"A":{"":[1,-1]}}}',
    b'{"server":"n1","accounts":{"A":{"":["1","1"]}}}',
    b'{"server":"n1","accounts":{"A":{"":[1,99999999999999999999999]}}}',
    b'{"server":"n1","accounts":{"A":{"":[1,1e400]}}}',
]


@pytest.mark.parametrize("data", NONSENSE)
async def test_nonsense_changes_nothing(
    network: Network, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    network.add("n1").use(300)
    two = network.add("n2")
    network.pass_time()
    network.send(data)
    assert two.elsewhere() == 300
    assert "is not understood" in caplog.text


async def test_what_is_not_known_here_is_not_kept(network: Network) -> None:
    network.add("n1")
    two = network.add("n2")
    network.forge(server="stranger", accounts={"A": {"": [1, 1]}})
    network.forge(server="n1", accounts={"UNKNOWN": {"": [1, 1]}}, asks=["UNKNOWN", "A"])
    network.forge(server="n1", accounts={"A": {"R1": [1, 1], "R9": [1, 1], "x": [1, 1]}})
    assert two.elsewhere() == 0
    heard = two.usage._elsewhere._heard
    assert [list(each) for each in heard.values()] in ([], [[]])


async def test_huge_numbers_are_no_harm(network: Network) -> None:
    two = network.add("n2")
    for server in ("n1", "n3", "n4"):
        network.add(server)
        network.forge(server=server, accounts={"A": {"": [BYTES_MAX, BYTES_MAX]}})
    assert two.elsewhere() == BYTES_MAX
    assert not two.has_room(0)


async def test_the_largest_limit_of_a_tier_is_no_overflow(network: Network) -> None:
    one = network.add("n1", {"R5": AccountLimits(max_storage=(1 << 63) - 1)})
    one.accounts["A"].tiers.usage_of(5).count_elsewhere(memory=0, file=1000)
    assert one.has_room(1 << 40, replicas=5)


async def test_many_accounts_are_told_in_turns(network: Network) -> None:
    one, two = network.add("n1"), network.add("n2")
    count = 2 * ACCOUNTS_AT_ONCE
    for at in range(count):
        one.serve(f"B{at}", LIMITED)
        two.serve(f"B{at}", LIMITED)
        one.use(at + 1, f"B{at}")
    network.sent.clear()
    network.pass_time(4 * TOLD_EVERY_S)
    assert all(two.elsewhere(f"B{at}") == at + 1 for at in range(count))
    told = [json.loads(each) for each in network.sent]
    assert max(len(each["accounts"]) for each in told) == ACCOUNTS_AT_ONCE
