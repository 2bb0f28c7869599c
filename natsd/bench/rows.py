"""The rows of the benchmark and their goals: two tables.

A row shows one metric of one scenario; rows that share a scenario share its runs. A goal is a bound
on natsd's median divided by the best other server's median in that row; in a row that shows a share
it is a bound on natsd's median itself.
"""

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass

from natsd.bench.cluster import SETUP as CLUSTER
from natsd.bench.cluster import InterestStorm
from natsd.bench.scenarios import (
    ConnectedClients,
    PubSub,
    RequestReply,
    Scenario,
    ServerStart,
    Sharing,
)
from natsd.bench.secured import Reload, RuledPublish
from natsd.bench.setups import EXPORTER, IMPORTER, MAPPED, SECURE, USER


@dataclass(frozen=True)
class Metric:
    """The meaning of a number: its unit, how it is shown, and whether higher or lower is better."""

    unit: str
    higher_is_better: bool
    divisor: float = 1.0
    digits: int = 2
    is_share: bool = False  # of what the same server does otherwise


METRICS = {
    "messages": Metric("M msg/s", higher_is_better=True, divisor=1e6),
    "clients": Metric("clients/s", higher_is_better=True, digits=0),
    "latency": Metric("µs", higher_is_better=False, digits=1),
    "time": Metric("ms", higher_is_better=False, digits=0),
    "share": Metric("%", higher_is_better=True, digits=1, is_share=True),
    "memory": Metric("KB", higher_is_better=False, divisor=1e3, digits=1),
}


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    key: str
    title: str
    scenario: Scenario
    value: str
    metric: Metric
    goal: float | None = None
    standard: bool = True

    def meets_goal(self, number: float) -> bool:
        """Return whether the ratio or share meets the goal; without a goal every one does."""
        if self.goal is None:
            return True
        return number >= self.goal if self.metric.higher_is_better else number <= self.goal

    @property
    def goal_text(self) -> str:
        """The goal as the table shows it; empty: there is none."""
        if self.goal is None:
            return ""
        unit = f" {self.metric.unit}" if self.metric.is_share else ""
        return f"{'≥' if self.metric.higher_is_better else '≤'} {self.goal:.1f}{unit}"


@dataclass(frozen=True)
class Scale:
    """The sizes of the rows that have a fixed size."""

    clients: int = 10_000
    subscriptions: int = 100_000
    subjects: int = 10_000
    requests: int = 20_000
    logins: int = 5_000
    secure_clients: int = 2_000
    streams: int = 1_000
    consumers: int = 10_000
    pulled: int = 200_000
    caught_up: int = 10_000_000
    idle_streams: int = 500
    idle_seconds: float = 10.0


QUICK = Scale(
    clients=1_000,
    subscriptions=10_000,
    subjects=1_000,
    requests=2_000,
    logins=500,
    secure_clients=300,
    streams=100,
    consumers=1_000,
    pulled=20_000,
    caught_up=200_000,
    idle_streams=50,
    idle_seconds=3.0,
)

GOALS = {
    "pub-16": 1.5,
    "pub-128": 1.4,
    "1-1-16": 2.8,
    "1-1-128": 2.5,
    "1-1-1k": 1.4,
    "1-1-16k": 1.2,
    "1-8-128": 2.7,
    "4-4-128": 2.2,
    "queue-4-128": 2.0,
    "request-p50": 0.8,
    "request-p99": 1.0,
    "wildcards": 1.5,
    "connect": 1.5,
    "idle-memory": 0.4,
    "tls-1-1-128": 2.0,
    "connect-user": 2.0,
    "connect-jwt": 1.0,
    "permissions": 95.0,
    "import": 3.0,
    "mapping": 3.0,
    "reload-10k": 1.0,
    "idle-memory-tls": 0.5,
    "route-1-1-128": 2.0,
    "route-request-p50": 0.7,
    "route-interest": 0.5,
}


def all_rows(scale: Scale) -> list[Row]:
    """Return every row, in the order of the table."""
    requests = RequestReply(scale.requests)
    connections = ConnectedClients(scale.clients)
    fleet = PubSub(1, 4, 128, Sharing.FLEET, scale.subscriptions, scale.subjects)
    group = PubSub(1, 4, 128, Sharing.GROUP)
    pairs = PubSub(4, 4, 128, Sharing.PAIRS)
    table: list[tuple[str, str, Scenario, str, str]] = [
        ("pub-16", "publish only, 16 B", PubSub(1, 0, 16), "rate", "messages"),
        ("pub-128", "publish only, 128 B", PubSub(1, 0, 128), "rate", "messages"),
        ("1-1-16", "1 → 1, 16 B", PubSub(1, 1, 16), "rate", "messages"),
        ("1-1-128", "1 → 1, 128 B", PubSub(1, 1, 128), "rate", "messages"),
        ("1-1-1k", "1 → 1, 1 KiB", PubSub(1, 1, 1 << 10), "rate", "messages"),
        ("1-1-16k", "1 → 1, 16 KiB", PubSub(1, 1, 1 << 14), "rate", "messages"),
        (
            "1-8-128",
            "1 → 8, 128 B (deliveries)",
            PubSub(1, 8, 128),
            "rate",
            "messages",
        ),
        (
            "4-4-128",
            "4 → 4, 128 B (deliveries)",
            PubSub(4, 4, 128),
            "rate",
            "messages",
        ),
        ("queue-4-128", "1 → queue group of 4, 128 B", group, "rate", "messages"),
        ("request-p50", "request/reply, 16 B, p50", requests, "p50_us", "latency"),
        ("request-p99", "request/reply, 16 B, p99", requests, "p99_us", "latency"),
        (
            "wildcards",
            f"{scale.subscriptions:,} wildcard subscriptions, {scale.subjects:,} subjects, 128 B",
            fleet,
            "rate",
            "messages",
        ),
        (
            "connect",
            f"connect+SUB+PING, {scale.clients:,} clients",
            connections,
            "rate",
            "clients",
        ),
        (
            "idle-memory",
            f"memory per idle connection, {scale.clients:,} clients",
            connections,
            "idle_bytes",
            "memory",
        ),
        ("start", "start to first connection", ServerStart(), "start_ms", "time"),
        *_secured_rows(scale),
        *_route_rows(scale),
        ("pairs-4-128", "4 separate pairs, 128 B", pairs, "rate", "messages"),
    ]
    return [
        Row(key, title, scenario, value, METRICS[metric], GOALS.get(key), key != "pairs-4-128")
        for key, title, scenario, value, metric in table
    ]


def _secured_rows(scale: Scale) -> list[tuple[str, str, Scenario, str, str]]:
    """Return the rows with TLS, users, permissions and accounts."""
    from natsd.bench.credentials import user

    tls = PubSub(1, 1, 128, setup="tls", publishing=SECURE, subscribing=SECURE)
    across = PubSub(1, 1, 128, setup="importing", publishing=EXPORTER, subscribing=IMPORTER)
    mapped = PubSub(1, 1, 128, setup="mapping", delivered=MAPPED.encode())
    logins = ConnectedClients(scale.logins, "users", USER)
    tokens = ConnectedClients(scale.logins, "jwt", user())
    idle = ConnectedClients(scale.secure_clients, "tls", SECURE)
    return [
        ("tls-1-1-128", "1 → 1, 128 B, TLS", tls, "rate", "messages"),
        ("connect-user", "connect with user and password", logins, "rate", "clients"),
        ("connect-jwt", "connect with JWT and nkey", tokens, "rate", "clients"),
        (
            "permissions",
            "rate with 50 allow and 50 deny rules, of that without",
            RuledPublish(),
            "share",
            "share",
        ),
        ("import", "1 → 1, 128 B, into another account", across, "rate", "messages"),
        ("mapping", "1 → 1, 128 B, mapped subject", mapped, "rate", "messages"),
        ("reload-10k", "reload of 10,000 users", Reload(), "reload_ms", "time"),
        (
            "idle-memory-tls",
            f"memory per idle TLS connection, {scale.secure_clients:,} clients",
            idle,
            "idle_bytes",
            "memory",
        ),
    ]


def _route_rows(scale: Scale) -> list[tuple[str, str, Scenario, str, str]]:
    """Return the rows with two servers and a route between them."""
    across = PubSub(1, 1, 128, setup=CLUSTER)
    group = PubSub(1, 4, 128, Sharing.GROUP, setup=CLUSTER)
    requests = RequestReply(scale.requests, setup=CLUSTER)
    storm = InterestStorm(scale.subscriptions)
    return [
        ("route-1-1-128", "1 → 1 across a route, 128 B", across, "rate", "messages"),
        (
            "route-queue-4-128",
            "1 → queue group of 4 across a route, 128 B",
            group,
            "rate",
            "messages",
        ),
        ("route-request-p50", "request/reply across a route, p50", requests, "p50_us", "latency"),
        ("route-request-p99", "request/reply across a route, p99", requests, "p99_us", "latency"),
        (
            "route-interest",
            f"{scale.subscriptions:,} subscriptions, until the other server delivers",
            storm,
            "storm_ms",
            "time",
        ),
    ]


def select(rows: Iterable[Row], patterns: list[str]) -> list[Row]:
    """Return the rows whose key matches one of the patterns, such as `1-1-*`.

    Without patterns the standard rows are returned.
    """
    if not patterns:
        return [row for row in rows if row.standard]
    return [row for row in rows if any(fnmatch.fnmatch(row.key, p) for p in patterns)]
