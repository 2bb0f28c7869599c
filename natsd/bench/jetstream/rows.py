"""The JetStream rows and their goals: a table."""

from collections.abc import Iterable
from dataclasses import dataclass

from natsd.bench.jetstream.arms import SyncSetting
from natsd.bench.jetstream.assets import Assets
from natsd.bench.jetstream.scenarios import (
    Bucket,
    JetStreamScenario,
    Keys,
    OrderedReplay,
    Pull,
    Restart,
    WaitingPublish,
    WindowPublish,
)
from natsd.bench.jetstream.whole_streams import (
    AtomicBatchPublish,
    DirectBatches,
    Expiring,
    MirrorCatchUp,
    Snapshot,
)
from natsd.bench.rows import Metric, Row

RATE = Metric("k/s", higher_is_better=True, divisor=1e3, digits=0)
LATENCY = Metric("µs", higher_is_better=False, digits=1)
TIME = Metric("ms", higher_is_better=False, digits=0)
MEMORY = Metric("KiB", higher_is_better=False, divisor=1024, digits=1)


@dataclass(frozen=True)
class JetStreamScale:
    """The sizes of the rows that have a fixed size."""

    pulled: int = 300_000
    replayed: int = 1_000_000
    keys: int = 1_000_000
    restarted: int = 10_000_000
    streams: int = 1_000
    consumers: int = 10_000
    clients: int = 16
    batch: int = 500


QUICK = JetStreamScale(
    pulled=20_000, replayed=50_000, keys=50_000, restarted=200_000, streams=50, consumers=500
)

DEFAULT, ALWAYS, INTERVAL = SyncSetting.DEFAULT, SyncSetting.ALWAYS, SyncSetting.INTERVAL


def all_rows(scale: JetStreamScale) -> list[Row]:
    """Return every row, in the order of the table."""
    return [
        *publish_rows(),
        *consumer_rows(scale),
        *bucket_rows(scale),
        *whole_stream_rows(scale),
        *large_rows(scale),
        *asset_rows(scale),
    ]


def publish_rows() -> list[Row]:
    """Return the rows of publishing, with a window of acknowledgements and one by one."""
    memory = WindowPublish("memory", DEFAULT)
    file = WindowPublish("file", DEFAULT)
    always = WindowPublish("file", ALWAYS)
    return [
        rate("js-memory", "async publish 128 B, memory", memory, 2.0),
        rate("js-file", "async publish 128 B, file, as each syncs by default", file, 1.5),
        rate("js-always", "async publish 128 B, file, both always synced", always, 10.0),
        median("js-sync-memory", "sync publish, memory, p50", WaitingPublish("memory", DEFAULT)),
        median(
            "js-sync-file",
            "sync publish, file, both synced each 2m, p50",
            WaitingPublish("file", INTERVAL),
        ),
    ]


def consumer_rows(scale: JetStreamScale) -> list[Row]:
    """Return the rows of reading a stream with a consumer."""
    pull, replay = Pull(scale.pulled), OrderedReplay(scale.replayed)
    return [
        rate("js-pull", "pull, batches of 500, explicit ack, 128 B", pull, 1.5),
        rate("js-replay", f"ordered push replay of {scale.replayed:,}", replay, 1.5),
    ]


def bucket_rows(scale: JetStreamScale) -> list[Row]:
    """Return the rows of key-value buckets."""
    clients, many = f"{scale.clients} clients", f"{scale.keys:,}-key KV"
    keys = Keys(scale.keys)
    put = Bucket(scale.clients, True, INTERVAL)
    put_default = Bucket(scale.clients, True, DEFAULT)
    get = Bucket(scale.clients, False, DEFAULT)
    return [
        rate("kv-put", f"KV put, {clients}, both synced each 2m", put, 1.5),
        rate("kv-put-default", f"KV put, {clients}, as each syncs by default", put_default),
        rate("kv-get", f"KV get, {clients}", get, 1.5),
        Row("kv-keys", f"{many}, keys", keys, "keys", RATE, 1.0),
        Row("kv-watch", f"{many}, watch", keys, "watch", RATE, 1.0),
    ]


def whole_stream_rows(scale: JetStreamScale) -> list[Row]:
    """Return the rows of batches, and of streams that are copied, read or expire as a whole."""
    count, batch = f"{scale.replayed:,}", scale.batch
    expiring, during = Expiring(scale.replayed), f"sync publish while {count} expire, p99"
    return [
        rate("js-atomic", f"atomic batches of {batch}, file", AtomicBatchPublish(batch), 1.0),
        rate("js-mirror", f"mirror of {count} catches up", MirrorCatchUp(scale.replayed), 1.5),
        rate(
            "js-direct-batch",
            f"direct get of {count} in batches of {batch}",
            DirectBatches(scale.replayed, batch),
            1.5,
        ),
        rate("js-snapshot", f"snapshot of {count}", Snapshot(scale.replayed), 1.0),
        rate(
            "js-snapshot-checked",
            f"snapshot of {count}, checked first",
            Snapshot(scale.replayed, is_checked=True),
            1.0,
        ),
        Row("js-expiry-p99", during, expiring, "p99_us", LATENCY),
        rate("js-expiry", f"{count} messages expire", expiring),
    ]


def large_rows(scale: JetStreamScale) -> list[Row]:
    """Return the rows of one large stream, and of many streams."""
    restart = f"restart with a {scale.restarted:,} message stream"
    many = f"round-robin over {scale.streams:,} file streams, as each syncs by default"
    restarts = Restart(scale.restarted)
    return [
        Row("js-restart", restart, restarts, "stopped_ms", TIME, 1.0),
        Row("js-kill", f"{restart}, after kill -9", restarts, "killed_ms", TIME),
        rate("js-streams", many, WindowPublish("file", DEFAULT, scale.streams), 0.5),
    ]


def asset_rows(scale: JetStreamScale) -> list[Row]:
    """Return the rows of many streams and consumers."""
    many = f"{scale.streams:,} file streams with {scale.consumers:,} durable consumers"
    assets = Assets(scale.streams, scale.consumers)
    return [
        Row("js-create", f"creation of {many}", assets, "made_ms", TIME, 2.0),
        Row(
            "js-create-one", "creation of a consumer, one by one, p50", assets, "single_us", LATENCY
        ),
        Row(
            "js-consumer-memory", "memory per idle consumer", assets, "consumer_bytes", MEMORY, 1.0
        ),
        Row("js-assets-restart", f"restart with {many}", assets, "stopped_ms", TIME, 2.0),
        Row("js-assets-kill", "the same restart, after kill -9", assets, "killed_ms", TIME, 2.0),
    ]


def rate(key: str, title: str, scenario: JetStreamScenario, goal: float | None = None) -> Row:
    """Return a row that shows messages per second."""
    return Row(key, title, scenario, "rate", RATE, goal)


def median(key: str, title: str, scenario: JetStreamScenario) -> Row:
    """Return a row that shows the median round trip, with the goal 0.8."""
    return Row(key, title, scenario, "p50_us", LATENCY, 0.8)


def by_sync(rows: Iterable[Row]) -> list[tuple[SyncSetting, list[Row]]]:
    """Return the rows by sync setting; rows of one setting can share their servers."""
    groups: dict[SyncSetting, list[Row]] = {}
    for row in rows:
        assert isinstance(row.scenario, JetStreamScenario)
        groups.setdefault(row.scenario.sync, []).append(row)
    return list(groups.items())
