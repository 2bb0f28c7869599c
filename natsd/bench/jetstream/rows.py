"""The JetStream rows and their goals: a table."""

from collections.abc import Iterable
from dataclasses import dataclass

from natsd.bench.jetstream.arms import Sync
from natsd.bench.jetstream.scenarios import (
    Bucket,
    JetStreamScenario,
    Keys,
    Pull,
    Replay,
    Restart,
    WaitingPublish,
    WindowPublish,
)
from natsd.bench.rows import Metric, Row

RATE = Metric("k/s", higher_is_better=True, divisor=1e3, digits=0)
LATENCY = Metric("µs", higher_is_better=False, digits=1)
TIME = Metric("ms", higher_is_better=False, digits=0)


@dataclass(frozen=True)
class Scale:
    """How big the rows of fixed size are."""

    pulled: int = 300_000
    replayed: int = 1_000_000
    keys: int = 1_000_000
    restarted: int = 10_000_000
    streams: int = 1_000
    clients: int = 16


QUICK = Scale(pulled=20_000, replayed=50_000, keys=50_000, restarted=200_000, streams=50)


def all_rows(scale: Scale) -> list[Row]:
    """Every row there is, in the order of the table."""
    keys = f"{scale.keys:,}-key KV"
    large = f"restart with a {scale.restarted:,} message stream"
    many = f"round-robin over {scale.streams:,} file streams"
    clients = f"{scale.clients} clients"
    default, always, interval = Sync.DEFAULT, Sync.ALWAYS, Sync.INTERVAL
    table: list[tuple[str, str, JetStreamScenario, str, Metric, float | None]] = [
        (
            "js-memory",
            "async publish 128 B, memory",
            WindowPublish("memory", default),
            "rate",
            RATE,
            2.0,
        ),
        (
            "js-file",
            "async publish 128 B, file, as each syncs by default",
            WindowPublish("file", default),
            "rate",
            RATE,
            1.5,
        ),
        (
            "js-always",
            "async publish 128 B, file, both always synced",
            WindowPublish("file", always),
            "rate",
            RATE,
            10.0,
        ),
        (
            "js-sync-memory",
            "sync publish, memory, p50",
            WaitingPublish("memory", default),
            "p50_us",
            LATENCY,
            0.8,
        ),
        (
            "js-sync-file",
            "sync publish, file, both synced each 2m, p50",
            WaitingPublish("file", interval),
            "p50_us",
            LATENCY,
            0.8,
        ),
        (
            "js-pull",
            "pull, batches of 500, explicit ack, 128 B",
            Pull(scale.pulled),
            "rate",
            RATE,
            1.5,
        ),
        (
            "js-replay",
            f"ordered push replay of {scale.replayed:,}",
            Replay(scale.replayed),
            "rate",
            RATE,
            1.5,
        ),
        (
            "kv-put",
            f"KV put, {clients}, both synced each 2m",
            Bucket(scale.clients, True, interval),
            "rate",
            RATE,
            1.5,
        ),
        (
            "kv-put-default",
            f"KV put, {clients}, as each syncs by default",
            Bucket(scale.clients, True, default),
            "rate",
            RATE,
            None,
        ),
        ("kv-get", f"KV get, {clients}", Bucket(scale.clients, False, default), "rate", RATE, 1.5),
        ("kv-keys", f"{keys}, keys", Keys(scale.keys, values=False), "rate", RATE, 1.0),
        ("kv-watch", f"{keys}, watch", Keys(scale.keys, values=True), "rate", RATE, 1.0),
        ("js-restart", large, Restart(scale.restarted, kill=False), "start_ms", TIME, 1.0),
        (
            "js-kill",
            f"{large}, after kill -9",
            Restart(scale.restarted, kill=True),
            "start_ms",
            TIME,
            None,
        ),
        (
            "js-streams",
            f"{many}, as each syncs by default",
            WindowPublish("file", default, scale.streams),
            "rate",
            RATE,
            0.5,
        ),
    ]
    return [
        Row(key, title, scenario, value, metric, goal)
        for key, title, scenario, value, metric, goal in table
    ]


def by_sync(rows: Iterable[Row]) -> list[tuple[Sync, list[Row]]]:
    """Rows that the same servers can be measured in."""
    groups: dict[Sync, list[Row]] = {}
    for row in rows:
        assert isinstance(row.scenario, JetStreamScenario)
        groups.setdefault(row.scenario.sync, []).append(row)
    return list(groups.items())
