"""The rows of streams with three replicas and their goals: a table."""

from typing import Final

from natsd.bench.jetstream.rows import LATENCY, RATE, TIME
from natsd.bench.replicated.scenarios import (
    CatchUp,
    ReplicatedBucket,
    ReplicatedPublish,
    ReplicatedPull,
    ReplicatedScenario,
    ReplicatedWaitingPublish,
)
from natsd.bench.replicated.streams import ReplicatedStreams
from natsd.bench.rows import Metric, Row, Scale

CLIENTS: Final = 16
CPU: Final = Metric("ms/s", higher_is_better=False, digits=1)


Line = tuple[str, str, ReplicatedScenario, str, Metric, float]
"""Key, title, scenario, value that it measures, its metric, and the goal."""


def all_rows(scale: Scale) -> list[Row]:
    """Return every row, in the order of the table."""
    return [
        Row(key, title, scenario, value, metric, goal, standard=False)
        for key, title, scenario, value, metric, goal in [*_messages(scale), *_servers(scale)]
    ]


# fmt: off
def _messages(scale: Scale) -> list[Line]:
    """Return the rows about messages on their way."""
    clients = f"{CLIENTS} clients on all servers"
    return [
        ("r3-file", "R3 async publish 128 B, file, as each syncs by default",
         ReplicatedPublish("file"), "rate", RATE, 1.5),
        ("r3-memory", "R3 async publish 128 B, memory",
         ReplicatedPublish("memory"), "rate", RATE, 2.0),
        ("r3-sync-always", "R3 sync publish, file, both always synced, p50",
         ReplicatedWaitingPublish(), "p50_us", LATENCY, 0.7),
        ("r3-pull", "R3 pull, batches of 500, explicit ack, 128 B",
         ReplicatedPull(scale.pulled), "rate", RATE, 2.0),
        ("r3-kv-put", f"R3 KV put, {clients}",
         ReplicatedBucket(CLIENTS, puts=True), "rate", RATE, 1.5),
        ("r3-kv-get", f"R3 KV get, {clients}",
         ReplicatedBucket(CLIENTS, puts=False), "rate", RATE, 2.0),
    ]


def _servers(scale: Scale) -> list[Line]:
    """Return the rows about servers and many streams."""
    caught_up, idle, made = scale.caught_up, scale.idle_streams, scale.streams
    return [
        ("r3-catch-up", f"R3 a wiped server catches up {caught_up:,} messages",
         CatchUp(caught_up), "rate", RATE, 1.5),
        ("r3-idle", f"CPU of a cluster with {idle:,} idle R3 streams",
         ReplicatedStreams(idle, scale.idle_seconds), "cpu_ms", CPU, 1.0),
        ("r3-create", f"creation of {made:,} R3 file streams",
         ReplicatedStreams(made), "made_ms", TIME, 1.0),
    ]
# fmt: on
